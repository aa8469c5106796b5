"""Findings d, l: what comes from the network is bytes with a schema; nothing is unpickled."""

from __future__ import annotations

import pickle
from uuid import UUID

import pysyncobj.pickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_quorum.raft.messages import (
    Admit,
    Append,
    AppendReply,
    Hello,
    MalformedFrame,
    Message,
    PreVoteReply,
    PreVoteRequest,
    Rejoin,
    SnapshotChunk,
    SnapshotReply,
    VoteReply,
    VoteRequest,
    decode,
    encode,
)
from tests.unit.raft.rig import Rig

ME = UUID(int=7)
u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)
_commands = st.builds(
    lambda kind, rest: bytes([kind]) + rest, st.sampled_from([0, 1, 16]), st.binary(max_size=50)
)


@st.composite
def _appends(draw: st.DrawFn) -> Append:
    prev = draw(st.integers(0, 2**40))
    terms = draw(st.lists(st.integers(0, 9), max_size=5))
    entries = tuple((draw(_commands), prev + 1 + n, term) for n, term in enumerate(terms))
    return Append(draw(st.integers(9, 2**50)), draw(u64), prev, draw(u64), draw(u64), draw(u32), entries)


messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(PreVoteRequest, u64, u64, u64, u64),
    st.builds(PreVoteReply, u64, u64, st.booleans()),
    st.builds(VoteRequest, u64, u64, u64),
    st.builds(VoteReply, u64),
    _appends(),
    st.builds(AppendReply, u64, u64, st.integers(0, 255), u64, st.booleans()),
    st.builds(SnapshotChunk, u64, u64, u64, u64, u32, u32, u64, u64, st.binary(max_size=100)),
    st.builds(SnapshotReply, u64, u64, u64, u64),
    st.builds(Hello, u64, st.integers(-1, 2**31 - 1), u64, u64, st.booleans(), st.booleans()),
    st.builds(Rejoin, u64, u64),
    st.builds(Admit, u64, u64, u64),
)


@given(messages)
def test_what_is_encoded_is_decoded(message: Message) -> None:
    assert decode(encode(ME, message)) == (ME, message)


@given(messages, st.data())
def test_a_frame_cut_short_or_grown_is_malformed(message: Message, data: st.DataObject) -> None:
    frame = encode(ME, message)
    cut = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(MalformedFrame):
        decode(frame[:cut])
    with pytest.raises(MalformedFrame):
        decode(frame + b"\0")


@given(st.binary(max_size=200), st.binary(min_size=1, max_size=30), messages)
def test_random_bytes_are_refused_cleanly(noise: bytes, patch: bytes, message: Message) -> None:
    frame = bytearray(encode(ME, message))
    frame[len(frame) // 3 : len(frame) // 3 + len(patch)] = patch
    for junk in (noise, bytes(frame)):
        try:
            decode(junk)
        except MalformedFrame:
            pass


@pytest.mark.row("Q10")
def test_a_pickle_is_a_malformed_frame_like_any_other() -> None:
    rig = Rig()

    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (exec, ("raise SystemExit('code ran from a message')",))

    for junk in (pickle.dumps(Bomb()), b"", b"\x01", bytes(1000)):
        with pytest.raises(ValueError):
            rig.rafts[1].receive(2, junk)
    rig.elect(1)
    ends = rig.propose(1, b"x")
    rig.settle()
    assert rig.committed(ends)


@pytest.mark.row("Q10")
def test_a_whole_life_without_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elections, entries, snapshots and restarts; PySyncObj's pickles are never touched."""

    def forbidden(*args: object, **kwargs: object) -> None:
        raise AssertionError("pickle")

    for module in (pickle, pysyncobj.pickle):
        for name in ("loads", "dumps", "load", "dump"):
            monkeypatch.setattr(module, name, forbidden, raising=False)
    rig = Rig()
    rig.elect(1)
    ends = rig.propose(1, *(b"%d" % n for n in range(50)))
    rig.settle()
    rig.rafts[1].applier.take_snapshot()
    rig.kill(2)
    rig.wipe(2)
    rig.start(2)
    rig.run(2.0, 0.05)
    assert rig.committed(ends)
    assert rig.machines[2].values == rig.machines[1].values


@pytest.mark.row("Q10")
def test_only_voters_are_heard() -> None:
    rig = Rig()
    frame = encode(ME, VoteRequest(50, 1000, 50))
    for stranger in (4, -1, 1):
        with pytest.raises(MalformedFrame, match="not a voter"):
            rig.rafts[1].receive(stranger, frame)
    assert rig.rafts[1].term == 0


def test_entries_of_unknown_kinds_are_refused() -> None:
    """g4: membership (2) and code version (3) commands of PySyncObj among them."""
    for kind in (2, 3, 4, 255):
        entry = (bytes([kind]) + b"x", 2, 1)
        with pytest.raises(MalformedFrame, match="no known kind"):
            decode(encode(ME, Append(1, 1, 1, 0, 0, 0, (entry,))))


def test_entries_from_the_future_are_refused() -> None:
    with pytest.raises(MalformedFrame, match="of term 2 in a message of term 1"):
        decode(encode(ME, Append(1, 1, 1, 0, 0, 0, ((b"\x01", 2, 2),))))


def test_a_claimed_length_beyond_the_frame_is_refused() -> None:
    frame = encode(ME, Append(1, 1, 1, 0, 0, 0, ((b"\x00abc", 2, 1),)))
    lying = frame[:-8] + (2**31).to_bytes(4, "big") + frame[-4:]
    with pytest.raises(MalformedFrame, match="claims"):
        decode(lying)
