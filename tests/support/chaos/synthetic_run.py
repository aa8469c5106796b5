"""The files of a chaos run that never happened, from a seed: a small model of three brokers and clients.

One minute. The follower 2 is cut off its leader for ten seconds, node 1 is killed and comes back, node 3 is
paused. `acks=all` waits for the ISR; `acks=1` goes on, and loses what only the killed leader had. With
`doubled`, one value of an idempotent producer is appended twice. The verdict is the checker's own.
"""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chaos.checker import check
from chaos.history import Header, History, HistoryWriter, Operation, Poll, Send, TopicMode

S = 1_000_000_000
TOPICS = {"all": TopicMode(2, -1, True), "one": TopicMode(2, 1)}
KEYS = [f"{topic}-{number}" for topic in TOPICS for number in range(2)]
SENDERS, READERS = range(4), range(4, 6)
CUT, KILL, PAUSE = (10 * S, 20 * S), (28 * S, 34 * S), (44 * S, 50 * S)
# Times in which nothing is acknowledged: until the ISR has shrunk, until there is a new leader.
SILENT = {"all": [(10 * S, 15 * S), (28 * S, 29 * S), (44 * S, 52 * S)], "one": [(28 * S, 29 * S)]}
UNREPLICATED = 27 * S  # from here on only the leader of one-0, which is about to die, has what is sent


def write(
    directory: Path, seed: int = 7, seconds: int = 60, pace: float = 0.02, doubled: bool = True
) -> None:
    """`pace`: seconds that a client waits before its next operation, on average."""
    operations = sorted(
        _Clients(seed, seconds, pace, doubled).operations(), key=lambda operation: operation.end
    )
    history = History(Header(TOPICS, "made-up", seed, 1_760_000_000_000), operations)
    with HistoryWriter(directory / "history.jsonl", history.header) as writer:
        for operation in operations:
            writer.append(operation)
    _lines(directory / "events.jsonl", _events())
    _lines(directory / "cluster.jsonl", _observed(seconds))
    _lines(directory / "story.jsonl", _decided())
    (directory / "verdict.json").write_text(json.dumps(_verdict(seed, history)))


def _decided() -> Iterator[dict[str, Any]]:
    what = "all-0: election: 1 → 2, leader epoch 3: broker 1 is fenced or shutting down, 2 was in the ISR"
    yield {"time": KILL[0] + S, "who": "decided", "what": what}


def _lines(path: Path, lines: Iterator[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in sorted(lines, key=lambda line: line["time"])))


class _Clients:
    """Senders and readers, each doing one thing after the other, on four logs."""

    def __init__(self, seed: int, seconds: int, pace: float, doubled: bool) -> None:
        self.rng = random.Random(seed)
        self.until, self.pace, self.doubled = seconds * S, pace, doubled
        self.logs: dict[str, list[int]] = {key: [] for key in KEYS}
        self.positions = {reader: dict.fromkeys(KEYS, 0) for reader in READERS}
        self.replicated = 0  # of one-0, while its leader is the only one to have more
        self.value = 0

    def operations(self) -> Iterator[Operation]:
        free = [(self.rng.randrange(S // 10), client, client) for client in (*SENDERS, *READERS)]
        heapq.heapify(free)
        failed_over = False
        while free:
            now, client, process = heapq.heappop(free)
            if now >= self.until:
                continue
            if now < UNREPLICATED:
                self.replicated = len(self.logs["one-0"])
            if now >= KILL[0] + S and not failed_over:
                del self.logs["one-0"][self.replicated :]
                failed_over = True
            operation = self.send(process, now) if client in SENDERS else self.poll(client, now, failed_over)
            yield operation
            if operation.outcome == "info":
                process += len(SENDERS) + len(READERS)
            pause = int(self.rng.expovariate(1 / self.pace) * S) + 1
            heapq.heappush(free, (operation.end + pause, client, process))
        yield Operation(READERS[0], "crash", self.until, self.until, "info")
        yield from self.final_phase(READERS[0] + 6, self.until + S)

    def took(self) -> int:
        return int(self.rng.lognormvariate(0.7, 0.8) * 1e6)

    def send(self, process: int, now: int) -> Operation:
        topic = "all" if process % 2 == 0 else "one"
        key = f"{topic}-{self.rng.randrange(2)}"
        self.value += 1
        sent, took = self.value, self.took()
        silent = next((gap for gap in SILENT[topic] if gap[0] <= now < gap[1]), None)
        if silent and self.rng.random() < 0.4:
            return Operation(process, "send", now, now + 2 * S, "info", [Send(key, sent)], "_TIMED_OUT")
        if silent and self.rng.random() < 0.6:
            return Operation(
                process, "send", now, now + took, "fail", [Send(key, sent)], "NOT_ENOUGH_REPLICAS"
            )
        self.logs[key].append(sent)
        offset = len(self.logs[key]) - 1
        if self.doubled and key == "all-1" and offset == 200:
            self.logs[key].append(sent)
        end = (silent[1] if silent else now) + took
        return Operation(process, "send", now, end, "ok", [Send(key, sent, offset)])

    def poll(self, process: int, now: int, failed_over: bool) -> Operation:
        messages = {}
        for key, position in self.positions[process].items():
            readable = len(self.logs[key]) if key != "one-0" or failed_over else self.replicated
            upto = min(readable, position + 30)
            if upto > position:
                messages[key] = [[offset, self.logs[key][offset]] for offset in range(position, upto)]
                self.positions[process][key] = upto
        return Operation(process, "poll", now, now + 2 * self.took(), "ok", [Poll(messages)])

    def final_phase(self, process: int, now: int) -> Iterator[Operation]:
        yield Operation(process, "assign", now, now + S // 100, "ok", keys=KEYS, final=True)
        everything = {
            key: [[offset, value] for offset, value in enumerate(log)] for key, log in self.logs.items()
        }
        yield Operation(process, "poll", now + S // 50, now + S // 10, "ok", [Poll(everything)], final=True)


def _events() -> Iterator[dict[str, Any]]:
    why = "follower(all-0) is 2, leader(all-0) is 1"
    for text, (begin, end), detail in [
        ("cut 2>1", CUT, why),
        ("kill 1", KILL, None),
        ("pause 3", PAUSE, None),
    ]:
        yield {"time": begin, "kind": "begin", "fault": text, "detail": detail}
        yield {"time": end, "kind": "end", "fault": text, "detail": None}
    yield {"time": 36 * S, "kind": "begin", "fault": "slow 1>3 200ms 50ms", "detail": None}
    yield {"time": 41 * S, "kind": "end", "fault": "slow 1>3 200ms 50ms", "detail": None}
    yield {"time": PAUSE[1] + S // 10, "kind": "point", "fault": "calm", "detail": None}
    yield {"time": 53 * S, "kind": "point", "fault": "healed", "detail": None}


def _observed(seconds: int) -> Iterator[dict[str, Any]]:
    for node in (1, 2, 3):
        yield {"time": 0, "f": "node", "id": node, "state": "up"}
    yield {"time": KILL[0], "f": "node", "id": 1, "state": "down"}
    yield {"time": KILL[1], "f": "node", "id": 1, "state": "up"}
    yield {"time": PAUSE[0], "f": "node", "id": 3, "state": "paused"}
    yield {"time": PAUSE[1], "f": "node", "id": 3, "state": "up"}
    yield {"time": 0, "f": "controller", "id": 1, "term": 1}
    yield {"time": KILL[0] + S, "f": "controller", "id": 3, "term": 2}
    yield {"time": PAUSE[0] + 2 * S, "f": "controller", "id": 2, "term": 4}
    for topic in TOPICS:
        for number in range(2):
            yield from _partition(f"{topic}-{number}", seconds, first_leader=1 if number == 0 else 2)


def _partition(key: str, seconds: int, first_leader: int) -> Iterator[dict[str, Any]]:
    """Changes of leader and ISR as the faults bring them; the high watermark grows, unless acks wait."""
    changes = [(0, first_leader, 1, [1, 2, 3])]
    if first_leader == 1:
        changes += [(15 * S, 1, 1, [1, 3]), (22 * S, 1, 1, [1, 2, 3]), (KILL[0] + S // 5, -1, 2, [1, 2, 3])]
        changes += [(29 * S, 2, 3, [2, 3])]
    else:
        changes += [(29 * S, 2, 1, [2, 3])]
    leader, epoch = changes[-1][1:3]
    changes += [
        (36 * S, leader, epoch, [1, 2, 3]),
        (52 * S, leader, epoch, [1, 2]),
        (56 * S, 1, epoch + 1, [1, 2, 3]),
    ]
    watermark = 0
    for tick in range(seconds * 10):
        now = tick * S // 10
        _, leader, epoch, isr = [change for change in changes if change[0] <= now][-1]
        waits = any(begin <= now < end for begin, end in SILENT["all"])
        watermark += 0 if waits else 1
        if key == "one-0" and tick == 290:
            watermark -= 40
        yield {
            "time": now, "f": "partition", "key": key,
            "leader": leader, "leader_epoch": epoch, "isr": isr, "hw": watermark,
        }  # fmt: skip


def _verdict(seed: int, history: History) -> dict[str, Any]:
    checked = check(history)
    expectations = [
        {"name": "acks=1 never stops", "ok": True, "detail": "longest gap 1.0 s, allowed 5.4 s"},
        {
            "name": "the ISR shrinks within 1.5 times replica.lag.time.max.ms",
            "ok": True,
            "detail": "after 5.0 s",
        },
        {"name": "no forbidden anomaly", "ok": checked.ok, "detail": "a detail may hold </script> and <!--"},
    ]
    return {
        "scenario": "made-up", "seed": seed, "ok": checked.ok,
        "expectations": expectations, "checker": checked.to_dict(), "story": "Nodes come and go.",
        "ledger": ["one-0: node 2 was elected at 29.0 s"],
    }  # fmt: skip
