"""`python -m kraft`, and the entry point of the package: the command line.

While it is being imported (half a second), Ctrl-C ends the process without a word, as it ends any
other program; from then on it is `plain_errors`'s affair.
"""

import signal


def main() -> None:
    """Import the commands, and run one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from kraft.cli.main import app

    app()


if __name__ == "__main__":
    main()
