"""What a subscription's regular expression says: RE2's syntax, read into a tree.

    choice   : sequence ('|' sequence)*
    sequence : (piece repeat?)*
    repeat   : '*' | '+' | '?' | '{n}' | '{n,}' | '{n,m}', each with a '?' that changes nothing here
    piece    : a character, '.', '[...]', '(...)', '^', '$', an escape

It is matched against names of topics only, and those are made of 65 characters: a class is the set of
those that are in it. Whatever RE2 does not have (references back, looking around) is refused.
Raises ValueError.
"""

from __future__ import annotations

import string
import unicodedata
from dataclasses import dataclass
from enum import Enum
from typing import Final

ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")
"""Of topic names."""
MOST_REPEATS: Final = 1_000
"""RE2's bound for a counted repetition."""
DEEPEST: Final = 100
"""Groups within groups."""

_WORD: Final = ALPHABET - frozenset(".-")
_DIGITS: Final = frozenset(string.digits)
_CLASSES: Final = {"d": _DIGITS, "w": _WORD, "s": frozenset[str]()}
_POSIX: Final = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": ALPHABET,
    "blank": frozenset[str](),
    "cntrl": frozenset[str](),
    "digit": _DIGITS,
    "graph": ALPHABET,
    "lower": frozenset(string.ascii_lowercase),
    "print": ALPHABET,
    "punct": frozenset("._-"),
    "space": frozenset[str](),
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROL: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Edge(Enum):
    """A place between characters."""

    START = "^"
    END = "$"
    WORD = r"\b"
    NOT_WORD = r"\B"


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of these."""

    chars: frozenset[str]


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    part: Node
    least: int
    most: int | None


Node = Chars | Edge | Sequence | Choice | Repeat

_EDGES: Final = {"A": Edge.START, "z": Edge.END, "b": Edge.WORD, "B": Edge.NOT_WORD}


def parse(text: str) -> Node:
    parser = _Parser(text)
    node = parser.choice()
    if parser.pos < len(text):
        raise ValueError("unexpected )")
    return node


class _Parser:
    """A position in the text; `ignore_case` as of the flags at that place."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self.depth = 0
        self.ignore_case = False

    def choice(self) -> Node:
        case = self.ignore_case  # flags hold to the end of their group
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        self.ignore_case = case
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self.pos < len(self.text) and self.text[self.pos] not in "|)":
            if self._take("\\Q"):
                literal, _, _ = self.text[self.pos :].partition("\\E")
                self.pos += len(literal) + 2
                parts += [self._literal(char) for char in literal]
                if literal:
                    parts.append(self._repeated(parts.pop()))
            elif (piece := self._piece()) is not None:
                parts.append(self._repeated(piece))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    # --- repetition ----------------------------------------------------------------------------

    def _repeated(self, part: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return part
        self._take("?")
        if self._bounds() is not None:
            raise ValueError("invalid nested repetition operator")
        return Repeat(part, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        if not self._take("{"):
            return None
        counts, brace, _ = self.text[self.pos :].partition("}")
        least, comma, most = counts.partition(",")
        if not brace or not least.isdecimal() or (most and not most.isdecimal()):
            self.pos -= 1
            return None  # an opening brace like any other character
        self.pos += len(counts) + 1
        low, high = int(least), int(most) if most else None if comma else int(least)
        if max(low, high or 0) > MOST_REPEATS or (high is not None and high < low):
            raise ValueError(f"invalid repeat count {{{counts}}}")
        return low, high

    # --- pieces --------------------------------------------------------------------------------

    def _piece(self) -> Node | None:
        """None for flags that hold from here on."""
        char = self.text[self.pos]
        self.pos += 1
        match char:
            case "(":
                return self._group()
            case "[":
                return Chars(self._class())
            case ".":
                return Chars(ALPHABET)
            case "^":
                return Edge.START
            case "$":
                return Edge.END
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise ValueError(f"missing argument to repetition operator {char}")
        return self._literal(char)

    def _literal(self, char: str) -> Chars:
        return Chars(self._cased(frozenset(char)))

    def _cased(self, chars: frozenset[str]) -> frozenset[str]:
        if self.ignore_case:
            chars = chars.union(*((char.lower(), char.upper()) for char in chars))
        return chars & ALPHABET

    def _group(self) -> Node | None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError("expression nests too deeply")
        outside = self.ignore_case
        if self._take("?"):
            if self._take("P<") or (self._take("<") and self._peek() not in ("=", "!")):
                name, closing, _ = self.text[self.pos :].partition(">")
                if not closing or not name.isidentifier():
                    raise ValueError("invalid named capture")
                self.pos += len(name) + 1
            elif not self._flags():
                self.depth -= 1
                return None
        node = self.choice()
        if not self._take(")"):
            raise ValueError("missing closing )")
        self.depth -= 1
        self.ignore_case = outside
        return node

    def _flags(self) -> bool:
        """Whether a group follows; otherwise they hold for the rest of the one around."""
        sets = True
        while (char := self._next("missing closing )")) not in ":)":
            if char == "-":
                sets = False
            elif char == "i":
                self.ignore_case = sets
            elif char not in "msU":
                raise ValueError("invalid or unsupported Perl syntax")
        return char == ":"

    def _escape(self) -> Node:
        char = self._next("trailing backslash at end of expression")
        if char in _EDGES:
            return _EDGES[char]
        return Chars(self._cased(self._escaped(char)))

    def _escaped(self, char: str) -> frozenset[str]:
        if char.lower() in _CLASSES:
            chars = _CLASSES[char.lower()]
            return ALPHABET - chars if char.isupper() else chars
        if char in "pP":
            return self._category(complement=char == "P")
        if char in _CONTROL:
            return frozenset(_CONTROL[char])
        if char == "x":
            return frozenset(self._hexadecimal())
        if char == "0":
            return frozenset("\0")
        if char.isalnum():
            raise ValueError(f"invalid escape sequence \\{char}")
        return frozenset(char)

    def _hexadecimal(self) -> str:
        if self._take("{"):
            digits, closing, _ = self.text[self.pos :].partition("}")
            self.pos += len(digits) + len(closing)
        else:
            digits = self.text[self.pos : self.pos + 2]
            self.pos += 2
        if not digits or not set(digits) <= set(string.hexdigits) or int(digits, 16) > 0x10FFFF:
            raise ValueError("invalid escape sequence \\x")
        return chr(int(digits, 16))

    def _category(self, *, complement: bool) -> frozenset[str]:
        name = self._next("invalid character class range")
        if name == "{":
            name, closing, _ = self.text[self.pos :].partition("}")
            self.pos += len(name) + len(closing)
        if name.startswith("^"):
            name, complement = name[1:], not complement
        chars = frozenset(char for char in ALPHABET if unicodedata.category(char).startswith(name))
        if name == "Latin":
            chars = frozenset(string.ascii_letters)
        elif not 1 <= len(name) <= 2:
            raise ValueError(f"invalid character class range \\p{{{name}}}")
        return ALPHABET - chars if complement else chars

    # --- classes -------------------------------------------------------------------------------

    def _class(self) -> frozenset[str]:
        complement = self._take("^")
        chars: frozenset[str] = frozenset()
        first = True
        while first or self._peek() != "]":
            chars |= self._member()
            first = False
        self.pos += 1
        chars = self._cased(chars)
        return ALPHABET - chars if complement else chars

    def _member(self) -> frozenset[str]:
        """Of a class: a character, a range, or a class within."""
        if self._take("[:"):
            name, closing, _ = self.text[self.pos :].partition(":]")
            complement = name.startswith("^")
            if not closing or name.lstrip("^") not in _POSIX:
                raise ValueError(f"invalid character class range [:{name}:]")
            self.pos += len(name) + 2
            return ALPHABET - _POSIX[name[1:]] if complement else _POSIX[name]
        low = self._one()
        if isinstance(low, frozenset) or self._peek() != "-" or self._peek(1) in ("]", ""):
            return low if isinstance(low, frozenset) else frozenset(low)
        self.pos += 1
        high = self._one()
        if isinstance(high, frozenset) or high < low:
            raise ValueError("invalid character class range")
        return frozenset(char for char in ALPHABET | {low, high} if low <= char <= high)

    def _one(self) -> str | frozenset[str]:
        char = self._next("missing closing ]")
        if char != "\\":
            return char
        chars = self._escaped(self._next("missing closing ]"))
        return next(iter(chars)) if len(chars) == 1 else chars

    # --- text ----------------------------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> str:
        return self.text[self.pos + ahead : self.pos + ahead + 1]

    def _take(self, sign: str) -> bool:
        found = self.text.startswith(sign, self.pos)
        if found:
            self.pos += len(sign)
        return found

    def _next(self, trouble: str) -> str:
        if self.pos >= len(self.text):
            raise ValueError(trouble)
        self.pos += 1
        return self.text[self.pos - 1]
