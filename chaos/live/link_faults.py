"""Faults of links, as data and as text: `cut 2>1`, `slow 1>3 200ms 50ms`.

    text --parse--> LinkFault --Links.apply--> toxics of Toxiproxy
    text <--str---- LinkFault <--Links.active-- toxics of Toxiproxy

A fault from a to b acts on what a sends to b, and on nothing else. An end is a node (`2`) or a
client (`c0`); `2-1` in place of `2>1` is both directions. One table has, for every kind, its toxic and the
names of its values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

End = int | str
"""A node by its id, or a client: "c0", "c1", …"""


class BadFault(ValueError):
    """The text is no fault; the sentence says why."""


@dataclass(frozen=True, slots=True)
class ToxicValue:
    """One value of a toxic."""

    attribute: str
    """Toxiproxy's name for it."""
    units: Mapping[str, float]
    """Unit -> how many of the toxic's own unit; the first is that unit itself."""
    default: int | None = None
    """None: it must be given."""
    minimum: int = 0

    def parse(self, text: str) -> int:
        """`250ms` in the toxic's own unit. Raises BadFault."""
        number = _NUMBER.fullmatch(text)
        size = self.units.get(number[2] or self.unit) if number else None
        if number is None or size is None:
            raise BadFault(f"{text}: {self.attribute} is a number of {', '.join(self.units)}")
        return round(float(number[1]) * size)

    def format(self, value: int) -> str:
        """In the largest unit that it is a whole number of."""
        whole = [u for u, size in self.units.items() if size >= 1 and value and value % size == 0]
        unit = max(whole, key=lambda u: self.units[u], default=self.unit)
        return f"{int(value // self.units[unit])}{unit}"

    @property
    def unit(self) -> str:
        return next(iter(self.units))


@dataclass(frozen=True, slots=True)
class LinkFaultKind:
    """One row of the table."""

    toxic: str | None
    """Toxiproxy's name; None where the proxy itself is switched off."""
    values: tuple[ToxicValue, ...]
    what: str
    fixed: Mapping[str, int] = field(default_factory=dict)
    """Attributes that make it this kind."""


_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "us": 1e-3}
_US: Final = {"us": 1, "ms": 1000, "s": 1_000_000}
_BYTES: Final = {"B": 1, "KB": 1000, "MB": 1_000_000}
_RATE: Final = {"KB/s": 1, "MB/s": 1000}

KINDS: Final[dict[str, LinkFaultKind]] = {
    # `timeout` with 0 never times out: bytes vanish, the connection stays, until the toxic is removed.
    "cut": LinkFaultKind("timeout", (), "nothing arrives, connections stay open", {"timeout": 0}),
    "slow": LinkFaultKind(
        "latency",
        (ToxicValue("latency", _MS), ToxicValue("jitter", _MS, 0)),
        "everything arrives late: DELAY, give or take JITTER",
    ),
    "bandwidth": LinkFaultKind("bandwidth", (ToxicValue("rate", _RATE, minimum=1),), "at most RATE arrives"),
    "slow-close": LinkFaultKind(
        "slow_close", (ToxicValue("delay", _MS, minimum=1),), "the end of a connection comes late"
    ),
    "timeout": LinkFaultKind(
        "timeout", (ToxicValue("timeout", _MS, minimum=1),), "nothing arrives, and connections end after TIME"
    ),
    "slice": LinkFaultKind(
        "slicer",
        (
            ToxicValue("average_size", _BYTES, minimum=1),
            ToxicValue("size_variation", _BYTES, 0),
            ToxicValue("delay", _US, 0),
        ),
        "arrives in pieces of SIZE, give or take VARIATION, with a PAUSE between them",
    ),
    "limit": LinkFaultKind("limit_data", (ToxicValue("bytes", _BYTES),), "a connection ends after BYTES"),
    "reset": LinkFaultKind(
        "reset_peer", (ToxicValue("timeout", _MS, 0),), "a connection is reset TIME after its first bytes"
    ),
    "down": LinkFaultKind(None, (), "connections end, and new ones are refused"),
}  # fmt: skip

QUOTE: Final = "in a shell, quote the link: 'A>B'"

_NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z/]*)")
_FAULT: Final = re.compile(r"(\S+)\s+(.+)")
_LINK: Final = re.compile(r"(c?\d+)\s*(>|-|to)\s*(c?\d+)\b\s*(.*)")


@dataclass(frozen=True, slots=True)
class LinkFault:
    """`kind` acts on what `source` sends to `target`; `both`: and in the other direction.

    `args` are in the toxic's own units (ms, bytes, KB/s, for a slice's pause microseconds); trailing
    ones that are the default are left out.
    """

    kind: str
    source: End
    target: End
    args: tuple[int, ...] = ()
    both: bool = False

    def __post_init__(self) -> None:
        values = _row(self.kind).values
        if self.source == self.target:
            raise BadFault(f"{self.source}>{self.target}: a link has two ends")
        if isinstance(self.source, str) and isinstance(self.target, str):
            raise BadFault(f"{self.source}>{self.target}: no link joins two clients")
        if len(self.args) > len(values):
            raise BadFault(f"{self.kind} takes {len(values) or 'no'} values, not {len(self.args)}")
        missing = [v.attribute for v in values[len(self.args) :] if v.default is None]
        if missing:
            raise BadFault(f"{self.kind} needs a value: {', '.join(missing)}")
        for value, arg in zip(values, self.args, strict=False):
            if arg < value.minimum:
                raise BadFault(
                    f"{self.kind}: {value.attribute} must be at least {value.format(value.minimum)}"
                )
        if self.kind == "slice" and self.args[1:] and self.args[1] >= self.args[0]:
            raise BadFault("slice: the variation must be below the size")
        args = self.args
        while args and args[-1] == values[len(args) - 1].default:
            args = args[:-1]
        object.__setattr__(self, "args", args)

    @classmethod
    def parse(cls, text: str) -> LinkFault:
        """`KIND A>B [VALUE]...`; `A-B` is both ways, and `A to B` spares the quotes in a shell. Raises
        BadFault."""
        match = _FAULT.fullmatch(text.strip())
        if match is None:
            raise BadFault(f"{text}: which link? A fault is KIND A>B [VALUE]...; {QUOTE}")
        kind, values = match[1], _row(match[1]).values
        source, target, both, rest = _parse_link(match[2])
        words = rest.split()
        if len(words) > len(values):
            raise BadFault(f"{text}: {kind} takes {len(values) or 'no'} values, not {len(words)}")
        args = tuple(value.parse(word) for value, word in zip(values, words, strict=False))
        return cls(kind, source, target, args, both)

    def __str__(self) -> str:
        link = f"{self.source}{'-' if self.both else '>'}{self.target}"
        values = (value.format(arg) for value, arg in zip(KINDS[self.kind].values, self.args, strict=False))
        return " ".join((self.kind, link, *values))

    @property
    def toxic(self) -> str | None:
        """Toxiproxy's type; None for `down`."""
        return KINDS[self.kind].toxic

    @property
    def attributes(self) -> dict[str, int]:
        """Toxiproxy's attributes, all of them."""
        row = KINDS[self.kind]
        filled = (*self.args, *(value.default or 0 for value in row.values[len(self.args) :]))
        names = (value.attribute for value in row.values)
        return {**row.fixed, **dict(zip(names, filled, strict=True))}

    def one_way(self) -> tuple[LinkFault, ...]:
        """The same as one fault per direction."""
        if not self.both:
            return (self,)
        return (replace(self, both=False), replace(self, source=self.target, target=self.source, both=False))


def parse_link(text: str) -> tuple[End, End, bool]:
    """`2>1` or `2-1`: source, target, both ways. Raises BadFault."""
    source, target, both, rest = _parse_link(text.strip())
    if rest:
        raise BadFault(f"{rest}: nothing may follow the link")
    return source, target, both


def _parse_link(text: str) -> tuple[End, End, bool, str]:
    match = _LINK.fullmatch(text)
    if match is None:
        raise BadFault(f"{text}: a link is A>B or A-B, its ends are nodes (2) or clients (c0); {QUOTE}")
    return end_of(match[1]), end_of(match[3]), match[2] == "-", match[4]


def end_of(text: str) -> End:
    """`2` or `c0`."""
    return text if text.startswith("c") else int(text)


def _row(kind: str) -> LinkFaultKind:
    if kind not in KINDS:
        raise BadFault(f"{kind}: no fault of a link; there are {', '.join(KINDS)}")
    return KINDS[kind]
