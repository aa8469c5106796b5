"""`python -m chaos` is `kraft chaos`."""

from kraft.cli.errors import plain_errors


def main() -> None:
    """Import the commands, and run one."""
    from chaos.cli import app

    with plain_errors():
        app(prog_name="python -m chaos")


if __name__ == "__main__":
    main()
