"""Faults of links: the text says the same as the data, and what makes no sense is refused in a sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.live.link_faults import KINDS, BadFault, LinkFault, parse_link

nodes = st.integers(1, 5)
clients = st.integers(0, 3).map(lambda number: f"c{number}")


@st.composite
def faults(draw: st.DrawFn) -> LinkFault:
    kind = draw(st.sampled_from(sorted(KINDS)))
    ends = [draw(nodes), draw(nodes | clients)]
    draw(st.randoms(use_true_random=False)).shuffle(ends)
    if ends[0] == ends[1]:
        ends[1] = "c0"
    args = tuple(value.minimum + draw(st.integers(0, 100_000)) for value in KINDS[kind].values)
    if kind == "slice":
        args = (args[0], args[1] % args[0], args[2])
    return LinkFault(kind, ends[0], ends[1], args, draw(st.booleans()))


@given(faults())
def test_the_text_is_read_back(fault: LinkFault) -> None:
    assert LinkFault.parse(str(fault)) == fault
    assert all(LinkFault.parse(str(way)) == way for way in fault.one_way())


@pytest.mark.parametrize(
    ("text", "written", "attributes"),
    [
        ("cut 2>1", "cut 2>1", {"timeout": 0}),
        ("cut 2 to 1", "cut 2>1", {"timeout": 0}),
        ("cut 2-c0", "cut 2-c0", {"timeout": 0}),
        ("slow 1>3 1.5s", "slow 1>3 1500ms", {"latency": 1500, "jitter": 0}),
        ("slow  1 > 3  200  50ms", "slow 1>3 200ms 50ms", {"latency": 200, "jitter": 50}),
        ("bandwidth c1>3 2MB/s", "bandwidth c1>3 2MB/s", {"rate": 2000}),
        ("slow-close 1>3 2m", "slow-close 1>3 2m", {"delay": 120_000}),
        ("timeout 1>3 5s", "timeout 1>3 5s", {"timeout": 5000}),
        ("slice 1>3 4B", "slice 1>3 4B", {"average_size": 4, "size_variation": 0, "delay": 0}),
        ("limit 1>3 10KB", "limit 1>3 10KB", {"bytes": 10_000}),
        ("reset 1>3", "reset 1>3", {"timeout": 0}),
        ("down 1>3", "down 1>3", {}),
    ],
)  # fmt: skip
def test_what_toxiproxy_is_sent(text: str, written: str, attributes: dict[str, int]) -> None:
    fault = LinkFault.parse(text)
    assert (str(fault), fault.attributes) == (written, attributes)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("cut", "which link"),  # what an unquoted `cut 2>1` leaves of it
        ("cut 2", "a link is A>B or A-B"),
        ("cut 2>2", "a link has two ends"),
        ("cut c0>c1", "no link joins two clients"),
        ("cut 2>1 5s", "cut takes no values, not 1"),
        ("mend 2>1", "mend: no fault of a link; there are cut, slow"),
        ("slow 2>1", "slow needs a value: latency"),
        ("slow 2>1 5KB", "5KB: latency is a number of ms, s, m, us"),
        ("bandwidth 2>1 0", "rate must be at least 1KB/s"),
        ("slice 2>1 8B 8B", "the variation must be below the size"),
    ],
)
def test_what_makes_no_sense(text: str, sentence: str) -> None:
    with pytest.raises(BadFault, match=sentence):
        LinkFault.parse(text)


def test_a_link_alone() -> None:
    assert parse_link("2>1") == (2, 1, False)
    assert parse_link("c0-1") == ("c0", 1, True)
    with pytest.raises(BadFault, match="nothing may follow the link"):
        parse_link("2>1 200ms")
