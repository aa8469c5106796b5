"""`python -m kraft`, and the entry point of the package: the command line.

While it is being imported (half a second), Ctrl-C ends the process without a word, as it ends any
other program; from then on `plain_errors` handles it.
"""

import signal

from kraft import own_packages


def main() -> None:
    """Import the commands, and run one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    own_packages.find_first()
    from kraft.cli.main import app

    app()


if __name__ == "__main__":
    main()
