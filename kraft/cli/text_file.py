"""Text files that the user names: that one cannot be read is said in one sentence, by every command alike."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from kraft.cli.errors import CliError

STANDARD_INPUT = "-"


@contextmanager
def opened(file: str | Path) -> Iterator[TextIO]:
    """To be read within; `-` is standard input. Raises `CliError` where that fails. Its text is UTF-8 in any
    locale, as everything is that Kafka stores."""
    try:
        if str(file) == STANDARD_INPUT:
            if isinstance(sys.stdin, io.TextIOWrapper):
                sys.stdin.reconfigure(encoding="utf-8", errors="strict")
            yield sys.stdin
        else:
            with open(file, encoding="utf-8") as text:
                yield text
    except OSError as error:
        raise CliError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CliError(f"cannot read {file}: it is no text") from None


def text_of(file: str | Path) -> str:
    """All of it. Raises `CliError`."""
    with opened(file) as text:
        return text.read()
