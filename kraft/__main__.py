"""`python -m kraft`, and the entry point of the package: the command line.

While it is being imported (half a second), Ctrl-C ends the process without a word, as it ends any
other program; from then on `plain_errors` handles it, until the command has said its last words.
"""

import os
import signal
import sys

from kraft import own_packages


def main() -> None:
    """Import the commands, and run one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    open_standard_streams()
    own_packages.find_first()
    from kraft.cli.errors import INTERRUPTED
    from kraft.cli.interruption import end_without_a_word
    from kraft.cli.main import app

    try:
        try:
            app()
        finally:
            end_without_a_word()
    except KeyboardInterrupt:  # while an earlier one, or an error, was answered
        end_without_a_word()
        sys.exit(INTERRUPTED)


def open_standard_streams() -> None:
    """Those that the shell has closed (`<&-`, `>&-`) become the null device: else the next file or socket
    would get their number, and be written to as if it were one of them."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            os.dup2(opened, number, inheritable=True)
            if opened != number:
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


if __name__ == "__main__":
    main()
