"""Tiny histories, one file per anomaly, and what the checker must say about them: also about those that only
look bad.

    topic NAME acks=0|1|all [idempotent] [transactional] [compacted]      begins a history
    PROCESS [final] F [fail|info] …                           an operation, ok unless said otherwise:
        send KEY VALUE@OFFSET VALUE …                         without @: no offset was answered
        send KEY VALUE@OFFSET#RECORDKEY …                     in a compacted topic
        poll KEY OFFSET:VALUE …                               a comma begins the next poll of the operation
             !OFFSET:WHAT                                     that record's WHAT is not as it was sent
             at=TIME                                          when they all returned
        txn send KEY … poll KEY …                             group=NAME consumed=KEY:FROM..TO asked=TIME
        init                                                  takes over the one transactional id
        ends KEY=STABLE..HIGH …                               last stable offsets and high watermarks
        assign KEY@OFFSET KEY … | crash                       without @: nobody says from where it reads
        subscribe group=NAME KEY …                            without group=: of no group
        owned group=NAME generation=N KEY …
        commit group=NAME KEY=OFFSET …                        was acknowledged
        committed group=NAME KEY=OFFSET …                     is what the coordinator answered
        rebalanced=KEY,KEY                                    keys that a group moved meanwhile
        time=START..END                                       else each operation ends before the next begins
        uncommitted                                           its polls were read_uncommitted
    torn                                                      the file ended inside a line
    check                                                     judges the history

The verdict is one line per anomaly: whether its topic's mode forbids or tolerates it, what it is, the
operations that prove it, and the sentence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from chaos.checker import check
from chaos.checker.anomalies import KINDS
from chaos.checker.text import not_judged
from chaos.history import (
    AlteredRecord,
    Header,
    History,
    HistoryTransaction,
    MicroOperation,
    Operation,
    Poll,
    Send,
    TopicMode,
)
from tests.golden.scenario_runner import run_commands, scenarios

ACKS = {"0": 0, "1": 1, "all": -1}
SLOT = 10  # ns from one operation's start to the next one's


@pytest.mark.row("C3")
@pytest.mark.parametrize("path", scenarios("checker"))
def test_histories_are_judged_as_written(path: Path) -> None:
    run_commands(path, Scenario().execute)


def test_every_anomaly_is_shown_forbidden_or_tolerated_by_a_file_of_its_own() -> None:
    for kind in KINDS:
        text = (Path(__file__).parent / "checker" / f"{kind.name}.txt").read_text()
        assert f" {kind.name} " in text
        assert "\nclean\n" in text, "a near miss that must not be flagged"


@dataclass
class Scenario:
    topics: dict[str, TopicMode] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)
    torn: bool = False

    def execute(self, line: str) -> list[str]:
        match line.split():
            case ["topic", name, acks, *modes]:
                self.topics[name] = TopicMode(
                    2,
                    ACKS[acks.removeprefix("acks=")],
                    "idempotent" in modes,
                    "transactional" in modes,
                    "compacted" in modes,
                )
            case ["torn"]:
                self.torn = True
            case ["check"]:
                lines = self.verdict()
                self.topics, self.operations, self.torn = {}, [], False
                return lines
            case [process, *words]:
                self.operations.append(self.operation(int(process), words))
        return []

    def operation(self, process: int, words: list[str]) -> Operation:
        final = words[0] == "final"
        f, *words = words[final:]
        outcome = words.pop(0) if words[:1] in (["fail"], ["info"]) else "ok"
        start = len(self.operations) * SLOT
        uncommitted = "uncommitted" in words
        words = [word for word in words if word != "uncommitted"]
        named = dict(word.split("=", 1) for word in words if "=" in word)
        words = [word for word in words if "=" not in word]
        if "time" in named:
            start, end = map(int, named["time"].split(".."))
        else:
            end = start + SLOT // 2
        reads = f in ("assign", "subscribe", "owned")
        asks = f in ("crash", "init", "ends", "commit", "committed")
        ops = () if reads or asks else micro_operations(f, words)
        if "at" in named:
            at = int(named["at"])
            ops = [micro._replace(at=at) if isinstance(micro, Poll) else micro for micro in ops]
        offsets = {key: word for key, word in named.items() if re.fullmatch(r".+-\d+", key)}
        ends = {key: tuple(map(int, word.split(".."))) for key, word in offsets.items() if f == "ends"}
        return Operation(
            process,
            f,  # type: ignore[arg-type]
            start,
            end,
            outcome,  # type: ignore[arg-type]
            ops,
            final=final,
            keys=[word.partition("@")[0] for word in words] if reads else (),
            rebalanced=named["rebalanced"].split(",") if "rebalanced" in named else (),
            txn=transaction(named) if f in ("txn", "init") else None,
            uncommitted=uncommitted,
            ends=ends,
            group=named.get("group") if f != "txn" else None,
            generation=int(named["generation"]) if "generation" in named else None,
            committed={key: int(word) for key, word in offsets.items() if f != "ends"},
            starts={key: int(at) for key, _, at in (word.partition("@") for word in words) if reads and at},
        )

    def verdict(self) -> list[str]:
        verdict = check(History(Header(self.topics), self.operations, self.torn))
        lines = [
            f"{'tolerated' if a.allowed else 'forbidden'} {a.kind} {list(a.evidence)} {a.summary}"
            for a in verdict.anomalies
        ]
        unjudged = not_judged(verdict)
        assert verdict.ok == (not unjudged and not any(line.startswith("forbidden") for line in lines))
        return [*lines, *unjudged] or ["clean"]


def micro_operations(f: str, words: list[str]) -> list[MicroOperation]:
    ops: list[MicroOperation] = []
    mode = f
    messages: dict[str, list[tuple[int, int]]] | None = None  # of the poll being read
    key = ""
    for word in words:
        if word in ("send", "poll", ","):
            mode, messages = (mode if word == "," else word), None
        elif re.fullmatch(r".+-\d+", word):
            key = word
            if mode == "poll":
                if messages is None:
                    messages = {}
                    ops.append(Poll(messages))
                messages.setdefault(key, [])
        elif word.startswith("!"):
            poll, (offset, what) = ops[-1], word[1:].split(":")
            assert isinstance(poll, Poll)
            ops[-1] = poll._replace(altered=[*poll.altered, AlteredRecord(key, int(offset), what)])
        elif mode == "poll":
            assert messages is not None
            offset, value = map(int, word.split(":"))
            messages[key].append((offset, value))
        else:
            written, _, record_key = word.partition("#")
            value, _, at = written.partition("@")
            ops.append(
                Send(key, int(value), int(at) if at else None, int(record_key) if record_key else None)
            )
    return ops


def transaction(named: dict[str, str]) -> HistoryTransaction:
    consumed = {}
    if "consumed" in named:
        key, _, offsets = named["consumed"].partition(":")
        low, _, high = offsets.partition("..")
        consumed[key] = (int(low), int(high))
    asked = int(named["asked"]) if "asked" in named else None
    return HistoryTransaction("transaction", named.get("group"), consumed, asked)
