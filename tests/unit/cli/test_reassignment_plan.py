"""Proposals are balanced, spread over racks and move little; their file is read as it was written."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.cli.reassignment_plan import PlacedPartition, decode, encode, propose

pytestmark = pytest.mark.row("Q11", "Q12")


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[PlacedPartition], dict[int, str | None]]:
    """Partitions that lie anywhere, and brokers to use (some of them new, others missing)."""
    brokers = draw(st.lists(st.integers(1, 9), min_size=1, max_size=8, unique=True))
    names = draw(st.sampled_from([(None,), ("a", "b"), ("a", "b", "c")]))
    racks = {broker: draw(st.sampled_from(names)) for broker in brokers}
    size = draw(st.integers(1, min(3, len(brokers))))
    lies = st.lists(st.integers(1, 12), min_size=size, max_size=size, unique=True).map(tuple)
    return [PlacedPartition("t", n, draw(lies)) for n in range(draw(st.integers(1, 12)))], racks


@given(situations())
def test_a_proposal_is_whole_and_spread_over_racks(
    situation: tuple[list[PlacedPartition], dict[int, str | None]],
) -> None:
    current, racks = situation
    for before, after in zip(current, propose(current, racks), strict=True):
        assert (after.topic, after.partition) == (before.topic, before.partition)
        assert len(set(after.replicas)) == len(after.replicas) == len(before.replicas)
        assert set(after.replicas) <= racks.keys()
        used = Counter(racks[broker] for broker in after.replicas)
        if max(used.values()) > 1:
            crowded = {rack for rack, count in used.items() if count > 1}
            empty = set(racks.values()) - used.keys()
            assert not (crowded and empty), f"{after} on {racks}"


@given(situations())
def test_without_racks_loads_and_leads_are_even(
    situation: tuple[list[PlacedPartition], dict[int, str | None]],
) -> None:
    current, named = situation
    racks = dict.fromkeys(named)
    proposal = propose(current, racks)
    loads = Counter(dict.fromkeys(racks, 0))
    loads.update(broker for each in proposal for broker in each.replicas)
    assert max(loads.values()) - min(loads.values()) <= 1
    for each in proposal:
        leads = Counter(other.replicas[0] for other in proposal)
        assert all(leads[each.replicas[0]] - leads[broker] <= 1 for broker in each.replicas)
    assert propose(proposal, racks) == proposal, "what is balanced stays"


def test_what_may_stay_stays() -> None:
    current = [
        PlacedPartition("t", 0, (1, 2)),
        PlacedPartition("t", 1, (2, 3)),
        PlacedPartition("t", 2, (3, 1)),
    ]
    grown = propose(current, dict.fromkeys((1, 2, 3, 4)))
    moved = sum(len(set(a.replicas) - set(b.replicas)) for a, b in zip(grown, current, strict=True))
    assert moved == 1  # six replicas on four brokers: the new one takes one
    assert propose(current, dict.fromkeys((1, 2, 3)), 3)[0].replicas == (1, 2, 3)


def test_too_few_brokers() -> None:
    with pytest.raises(ValueError, match="2 replicas cannot be placed on 1 brokers"):
        propose([PlacedPartition("t", 0, (1, 2))], {1: None})


def test_the_file_is_that_of_the_tool() -> None:
    plan = [PlacedPartition("t", 0, (1, 2)), PlacedPartition("u", 3, (2,), ("/disks/b",))]
    text = encode(plan)
    assert text.startswith('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]')
    assert decode(text) == [PlacedPartition("t", 0, (1, 2), ("any", "any")), plan[1]]
    assert decode('{"partitions": [{"topic": "t", "partition": 1, "replicas": [7]}]}') == [
        PlacedPartition("t", 1, (7,))
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "each entry of"),
        ('{"partitions": [{"topic": "t"}]}', "each entry of"),
        ('{"partitions": []}', "no partition is named"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1e400]}]}', "each entry of"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1.5]}]}', "each entry of"),
        ('{"partitions": [{"topic": "t", "partition": "0", "replicas": [1]}]}', "each entry of"),
        ('{"partitions": [{"topic": 7, "partition": 0, "replicas": [1]}]}', "each entry of"),
        ('{"version": 2, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}', "version 2"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "t-0: replicas are"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": []}]}', ""),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["any", "any"]}]}',
            "t-0: 2 log_dirs for 1 replicas",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "t-0 is named more than once",
        ),
    ],
)
def test_what_is_no_plan_is_refused(text: str, sentence: str) -> None:
    if not sentence:
        assert decode(text)
        return
    with pytest.raises(ValueError, match=sentence):
        decode(text)
