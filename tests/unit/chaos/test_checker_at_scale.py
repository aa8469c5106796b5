"""A million operations are judged in less than a minute of CPU time, in the memory of an ordinary machine."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import psutil
import pytest

from chaos.checker import check
from chaos.history import Header, History, HistoryTransaction, Operation, Poll, Send, TopicMode, read, write
from tests.support.cpu_time import slowness

KEYS = [f"t-{n}" for n in range(4)]
PROCESSES = 10


def busy_history(length: int, transactional: bool) -> History:
    """Half of the operations send, half poll what is new to their process. Operations overlap: polls return
    what is not acknowledged yet, so that transactions leave no quick proof that there are no cycles."""
    random = Random(1)
    logs: dict[str, list[tuple[int, int]]] = {key: [] for key in KEYS}
    places = [dict.fromkeys(KEYS, 0) for _ in range(PROCESSES)]
    operations: list[Operation] = []
    for n in range(length):
        start, end = n * 1_000, n * 1_000 + 9_000
        process = n % PROCESSES
        if process % 2:
            key = random.choice(KEYS)
            logs[key].append((len(logs[key]), n))
            ops = [Send(key, n, len(logs[key]) - 1)]
            if transactional and n > 100:
                # Its input is long past: read, written and committed before it began.
                old = random.choice(KEYS)
                ops.insert(0, Poll({old: [logs[old][len(logs[old]) // 2]]}))  # type: ignore[arg-type]
                txn = HistoryTransaction(f"txn-{process}", "g", {})
                operations.append(Operation(process, "txn", start, end, "ok", ops, rebalanced=[old], txn=txn))
            else:
                operations.append(Operation(process, "send", start, end, "ok", ops))
        else:
            messages = {}
            for key, place in places[process].items():
                if new := logs[key][place : place + 10]:
                    messages[key] = new
                    places[process][key] += len(new)
            operations.append(Operation(process, "poll", start, start + 3_000, "ok", [Poll(messages)]))
    end = length * 1_000 + 10_000
    written = {key: (len(logs[key]), len(logs[key])) for key in KEYS}
    operations.append(Operation(91, "ends", end - 1, end - 1, "ok", final=True, ends=written))
    operations.append(Operation(90, "assign", end, end, "ok", final=True, keys=KEYS))
    operations.append(Operation(90, "poll", end, end, "ok", [Poll(logs)], final=True))
    return History(Header({"t": TopicMode(4, -1, True, transactional)}), operations)


@pytest.mark.long
@pytest.mark.timeout(
    3600
)  # what it asserts is CPU time: a busy machine makes a quarter of an hour of a minute
@pytest.mark.row("C3")
@pytest.mark.parametrize("transactional", [False, True])
def test_a_million_operations_in_a_minute(tmp_path: Path, transactional: bool) -> None:
    path = tmp_path / "history.jsonl"
    write(path, busy_history(1_000_000, transactional))
    begin = time.process_time()
    history = read(path)
    loaded, slow = time.process_time(), slowness()
    verdict = check(history)
    done = time.process_time()
    gigabytes = psutil.Process().memory_info().rss / 2**30
    print(f"read {loaded - begin:.1f} s, check {done - loaded:.1f} s, {gigabytes:.1f} GB")
    assert verdict.ok, verdict.counts
    assert verdict.stats["operations"] == 1_000_003
    assert (done - loaded) / max(slow, slowness()) < 60
    assert gigabytes < 8
