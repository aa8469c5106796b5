"""Raft among real voters on simulated disks, message by message. Nothing moves but by a command.

    voters N [SETTING=VALUE…]       a new quorum of 1..N, connected, without a leader
    timeout N                       voter N's election timeout ends: pre-vote, vote, and what follows
    elect N                         the same, but only its outcome is printed
    propose N VALUE…                to voter N; what becomes of it is printed when it has ended
    cut A B | heal                  messages between A and B are lost, both ways; no more of that
    kill N [power] | start N        its process, or its machine with all that was not synced
    wipe N                          the disk of a dead voter is replaced
    pass SECONDS                    the clock goes on; heartbeats and their answers are not printed
    log                             per voter: role, term, index of the last commit, entries as TERM:VALUE

Printed is each message as it is sent, `->`, then what the machines apply, and what became of proposals.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from metadata_quorum.raft.config import RaftConfig
from metadata_quorum.raft.messages import (
    Ack,
    Append,
    AppendReply,
    Hello,
    Message,
    PreVoteReply,
    SnapshotChunk,
    SnapshotReply,
    decode,
)
from metadata_quorum.raft.port import Applied
from tests.golden.scenario_runner import run_scenario, scenarios
from tests.unit.raft.rig import Rig


@pytest.mark.row("Q1")
@pytest.mark.parametrize("path", scenarios("raft"))
def test_scenario(path: Path) -> None:
    run_scenario(path, Scenario())


class Scenario:
    rig: Rig

    def __init__(self) -> None:
        self.ends: list[str] = []
        self.applied: dict[int, int] = {}
        """Values that a voter's machine held when it was last looked at."""

    def do_voters(self, count: str, *settings: str) -> None:
        named = dict(word.split("=") for word in settings)
        self.rig = Rig(int(count), RaftConfig(**{name: int(value) for name, value in named.items()}))
        self.rig.settle()
        self.applied = dict.fromkeys(self.rig.ids, 0)

    def do_timeout(self, voter: str) -> list[str]:
        def expire() -> None:
            self.rig.elections_held = False
            for i, raft in self.rig.rafts.items():
                raft.elections.due_at = self.rig.now if i == int(voter) else float("inf")
            self.rig.settle()
            self.rig.elections_held = True

        return self._what_happens(expire)

    def do_propose(self, voter: str, *values: str) -> list[str]:
        def propose() -> None:
            for value in values:
                self.rig.rafts[int(voter)].propose(value.encode(), self._noting(value))
            self.rig.settle()

        return self._what_happens(propose)

    def do_elect(self, voter: str) -> list[str]:
        self.do_timeout(voter)
        return [f"leader {leader}, term {self.rig.rafts[leader].term}" for leader in self.rig.leaders()]

    def do_cut(self, one: str, other: str) -> None:
        self.rig.cut_between((int(one),), (int(other),))

    def do_heal(self) -> None:
        self.rig.cut.clear()

    def do_kill(self, voter: str, *how: str) -> list[str]:
        def kill() -> None:
            self.rig.kill(int(voter), power=how == ("power",), seed=1, broken=False)

        return self._what_happens(kill)

    def do_start(self, voter: str) -> list[str]:
        self.applied[int(voter)] = 0

        def start() -> None:
            self.rig.start(int(voter))
            self.rig.settle()

        return self._what_happens(start)

    def do_wipe(self, voter: str) -> None:
        self.rig.wipe(int(voter))

    def do_pass(self, seconds: str) -> list[str]:
        return self._what_happens(lambda: self.rig.run(float(seconds)), heartbeats=False)

    def do_log(self) -> list[str]:
        return [self._log_of(i) for i in self.rig.ids]

    def _log_of(self, voter: int) -> str:
        raft = self.rig.rafts.get(voter)
        if raft is None:
            return f"{voter}: down"
        role = "leader" if raft.is_leader else "follower"
        entries = " ".join(f"{term}:{command.decode()}" for _, term, command in self.rig.log(voter))
        first = self.rig.log(voter)[0][0]
        committed = raft.state().commit_index
        return f"{voter}: {role}, term {raft.term}, committed {committed}, from {first}: {entries}"

    def _noting(self, value: str) -> Callable[[Applied], None]:
        def note(applied: Applied) -> None:
            where = f" at {applied.index} in term {applied.term}" if applied.index >= 0 else ""
            self.ends.append(f"{value}: {applied.outcome.value}{where}")

        return note

    def _what_happens(self, act: Callable[[], None], *, heartbeats: bool = True) -> list[str]:
        before = len(self.rig.sent)
        act()
        lines = [
            f"{source} -> {target}  {text(decode(frame).message)}"
            for source, target, frame in self.rig.sent[before:]
            if heartbeats or not is_heartbeat(decode(frame).message)
        ]
        for voter, machine in sorted(self.rig.machines.items()):
            if voter in self.rig.rafts and (news := machine.values[self.applied[voter] :]):
                lines.append(f"{voter} applies {' '.join(value.decode() for value in news)}")
                self.applied[voter] = len(machine.values)
        lines += self.ends
        self.ends = []
        return lines


def is_heartbeat(message: Message) -> bool:
    """Also an answer that goes with it."""
    match message:
        case Append(entries=entries):
            return not entries
        case AppendReply(ack=ack):
            return ack == Ack.MATCHED
    return False


def text(message: Message) -> str:
    """A message as a line: what matters of it for the algorithm; no digests, no nonces."""
    name, term = type(message).__name__, message.term
    match message:
        case Append(prev_index=prev, prev_term=prev_term, commit_index=commit, entries=entries):
            found = " ".join(f"{entry_term}:{_value(command)}" for command, _, entry_term in entries)
            return f"{name} term {term}, after {prev}/{prev_term}, commit {commit} [{found}]"
        case AppendReply(ack=ack, next_index=following, counts=counts):
            return f"{name} term {term}, {Ack(ack).name}, next {following}{'' if counts else ', mute'}"
        case PreVoteReply(granted=granted):
            return f"{name} term {term}, {'granted' if granted else 'refused'}"
        case Hello(leader_id=leader, mute=mute, vouch=vouch):
            return f"{name} term {term}, leader {leader}{', mute' * mute}{', vouch' * vouch}"
        case SnapshotChunk(index=index, index_term=index_term, total=total, offset=offset, data=data):
            return f"{name} term {term}, up to {index}/{index_term}, {offset}+{len(data)} of {total} bytes"
        case SnapshotReply(index=index, offset=offset):
            return f"{name} term {term}, up to {index}, from {offset}"
    last = f", last {message.last_index}/{message.last_term}" if hasattr(message, "last_index") else ""
    return f"{name} term {term}{last}"


def _value(command: bytes) -> str:
    return command[1:].decode() if command[0] == 0 else "-"
