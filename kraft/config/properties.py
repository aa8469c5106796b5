"""Java's properties format, as far as server.properties and client.properties files use it.

    # comment, as with !
    key=value
    key: value
    list=first,\\
      second

Unlike in Java's own reader, a backslash within a line is itself, there is no \\uXXXX, a key ends at = or :
only, and a line without either is an error. The package javaproperties (0.8.2: typed, pure Python; it adds 11
ms to a node's start) reads all of it as Java does. It is not used yet because it changes what files mean: a
single backslash in a password or a rule disappears, and a misspelled line becomes a key without a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from metadata_quorum.foundation.errors import ExitCode, FatalError


def parse_properties(text: str) -> dict[str, str]:
    """The values of a file by key; of a key that is there twice, the last. Raises FatalError(BAD_CONFIG)."""
    values: dict[str, str] = {}
    for line in _logical_lines(text):
        separators = [i for i, c in enumerate(line) if c in "=:"]
        if not separators:
            raise FatalError(ExitCode.BAD_CONFIG, f"server.properties={line}: each line is key=value")
        values[line[: separators[0]].strip()] = line[separators[0] + 1 :].strip()
    return values


def _logical_lines(text: str) -> Iterator[str]:
    """Without comments, and with the lines that a backslash at their end continues; behind the last one there
    may be nothing."""
    pending = ""
    for line in text.splitlines():
        stripped = line.strip()
        if not pending and (not stripped or stripped[0] in "#!"):
            continue
        logical = pending + stripped
        if logical.endswith("\\") and not logical.endswith("\\\\"):
            pending = logical[:-1]
        else:
            pending = ""
            yield logical
    if pending:
        yield pending


def format_properties(values: Mapping[str, str]) -> str:
    """The text of such a file, keys in the order given. Raises FatalError(BAD_CONFIG) for a value that would
    not be read again."""
    for name, value in values.items():
        if not _can_stand(name, value):
            raise FatalError(
                ExitCode.BAD_CONFIG,
                f"{name}: this value cannot stand in a properties file; it has a line break, ends with a "
                "backslash, or is not UTF-8",
            )
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _can_stand(name: str, value: str) -> bool:
    line = f"{name}={value}"
    try:
        line.encode()
        return parse_properties(line) == {name: value.strip()}
    except (FatalError, UnicodeEncodeError):
        return False
