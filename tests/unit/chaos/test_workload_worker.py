"""A worker's numbers, clients and places, and the final read, with clients that do what their test says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

from confluent_kafka import KafkaError

from chaos.history import AlteredRecord, Operation, Poll, Send
from chaos.workload.discard import DiscardedClients
from chaos.workload.final import FRESH_CLIENT_NS, read_all
from chaos.workload.generator import AssignStep, CrashStep, PollStep, SendStep, SubscribeStep, TransactStep
from chaos.workload.journal import Journal
from chaos.workload.producer import Dispatch
from chaos.workload.worker import Making, Worker

WORKERS = 4


class Rig:
    """A worker, its cluster (one list of values per key), a clock, and the record."""

    def __init__(self, transactor: Callable[[Journal], Any] | None = None) -> None:
        self.now = 0
        self.record: list[Operation] = []
        self.log: dict[str, list[int]] = {}
        self.answering = True
        self.fatal = False
        self.stuck_readers = 0
        self.made: list[str] = []
        self.readers: list[Reader] = []
        self.ended: list[object] = []
        self.dropped: list[object] = []
        making: Any = Making(
            lambda: Sender(self), lambda: Reader(self, "reader"), lambda i: Reader(self, f"{i}")
        )
        self.discarded = DiscardedClients()
        journal = Journal(2, WORKERS, self.tick, self.record.append)
        self.worker = Worker(
            iter(()), making, journal=journal, discarded=self.discarded,
            transactor=None if transactor is None else transactor(journal),
        )  # fmt: skip

    def tick(self) -> int:
        self.now += 1
        return self.now

    def outcomes(self) -> list[tuple[int, str, str]]:
        return [(each.process, each.f, each.outcome) for each in self.record]


class Sender:
    is_dead = False

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        rig.made.append("sender")

    def send(self, sends: Sequence[tuple[str, int]]) -> Dispatch:
        self.dispatch = Dispatch(sends, self.rig.tick)
        for place, (key, value) in enumerate(sends):
            if self.rig.fatal:
                self.is_dead = True
                self.dispatch.refuse(place, "fatal")
            elif self.rig.answering:
                log = self.rig.log.setdefault(key, [])
                log.append(value)
                self.report(place, None, len(log) - 1)
        return self.dispatch

    def report(self, place: int, error: KafkaError | None, offset: int) -> None:
        report: Any = type("Report", (), {"offset": lambda _: offset})()
        self.dispatch.report_to(place)(error, report)

    def wait(self, dispatch: Dispatch) -> None:
        self.purge()

    def serve(self, seconds: float) -> None:
        pass

    def purge(self) -> None:
        for place in range(len(self.dispatch.outcomes)):
            if not self.dispatch.is_reported:
                self.report(place, KafkaError(KafkaError._PURGE_INFLIGHT), -1)

    def end(self) -> None:
        self.rig.ended.append(self)


class Reader:
    is_dead = False
    group = "g"

    def __init__(self, rig: Rig, name: str) -> None:
        self.rig = rig
        self.keys: list[str] = []
        self.is_stuck = rig.stuck_readers > 0
        rig.stuck_readers -= 1
        rig.made.append(name)
        rig.readers.append(self)

    def assign(self, keys: Iterable[str], places: Mapping[str, int]) -> None:
        self.keys = list(keys)

    def subscribe(self, topics: Iterable[str]) -> None:
        self.keys = [key for key in self.rig.log if key[:-2] in topics]

    def poll(self, timeout_s: float, places: MutableMapping[str, int]) -> dict[str, list[tuple[int, int]]]:
        self.rig.now += int(timeout_s * 1e9)
        found = {}
        for key in self.keys if not self.is_stuck else ():
            rest = list(enumerate(self.rig.log.get(key, ())))[places.get(key, 0) :]
            if rest:
                found[key] = rest
                places[key] = rest[-1][0] + 1
        return found

    def end_of(self, key: str) -> int | None:
        return len(self.rig.log.get(key, ()))

    def take_error(self) -> str | None:
        return None

    def take_altered(self) -> tuple[AlteredRecord, ...]:
        return ()

    def note_news(self, journal: Journal) -> None:
        pass

    def take_rebalanced(self) -> tuple[str, ...]:
        return ()

    def end(self) -> None:
        self.rig.ended.append(self)

    def drop(self) -> None:
        self.rig.dropped.append(self)


def test_an_unknown_outcome_retires_the_number_and_the_client_which_reads_on_where_it_stood():
    rig = Rig()
    rig.worker.do(AssignStep(("t-0",), from_beginning=True))
    rig.worker.do(SendStep((("t-0", 1), ("t-0", 2))))
    rig.worker.do(PollStep())
    rig.answering = False
    rig.worker.do(SendStep((("t-0", 3),)))
    rig.answering = True
    rig.worker.do(SendStep((("t-0", 4),)))
    rig.worker.do(PollStep())
    assert rig.outcomes() == [
        (2, "assign", "ok"), (2, "send", "ok"), (2, "poll", "ok"), (2, "send", "info"),
        (6, "assign", "ok"), (6, "send", "ok"), (6, "poll", "ok"),
    ]  # fmt: skip
    assert rig.record[1].ops == (Send("t-0", 1, 0), Send("t-0", 2, 1))
    assert [poll.ops for poll in (rig.record[2], rig.record[6])] == [
        (Poll({"t-0": [(0, 1), (1, 2)]}),),
        (Poll({"t-0": [(2, 4)]}),),
    ]
    rig.discarded.wait(60)
    assert len(rig.ended) == 2
    assert rig.made == ["reader", "sender", "reader", "sender"]


class Zombies:
    """Each transaction is one's of a producer that has been replaced."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def do(self, step: TransactStep) -> None:
        self.journal.retire()


def test_who_writes_under_a_new_number_reads_under_it_with_a_new_client():
    """A member of a group is known by its number: what another is given would count for nobody."""
    rig = Rig(Zombies)
    rig.log["t-0"] = [1]
    rig.worker.do(SubscribeStep(("t",), ("t-0",)))
    rig.worker.do(TransactStep((), "zombie"))
    rig.worker.do(PollStep())
    assert rig.outcomes() == [(2, "subscribe", "ok"), (6, "subscribe", "ok"), (6, "poll", "ok")]
    rig.discarded.wait(60)
    assert rig.ended == [rig.readers[0]]


def test_a_crash_leaves_what_was_in_flight_unknown_and_then_retires_once_more():
    rig = Rig()
    rig.answering = False
    rig.worker.do(SubscribeStep(("t",), ("t-0",)))
    rig.worker.do(CrashStep((("t-0", 1),), 0.0, static_member=True))
    rig.worker.do(SubscribeStep(("t",), ("t-0",)))
    rig.worker.do(CrashStep((), 0.0, static_member=False))
    assert rig.outcomes() == [
        (2, "subscribe", "ok"), (2, "send", "info"), (6, "crash", "info"),
        (10, "subscribe", "ok"), (10, "crash", "info"),
    ]  # fmt: skip
    assert rig.made == ["None", "sender", "member-10"]
    assert rig.record[1].error is not None


def test_a_producer_that_refuses_everything_is_replaced_although_the_outcome_is_known():
    rig = Rig()
    rig.fatal = True
    rig.worker.do(SendStep((("t-0", 1),)))
    rig.fatal = False
    rig.worker.do(SendStep((("t-0", 2),)))
    assert rig.outcomes() == [(2, "send", "fail"), (2, "send", "ok")]
    assert rig.made == ["sender", "sender"]


def test_a_consumer_that_is_fenced_is_replaced_by_one_that_reads_on_where_it_stood():
    rig = Rig()
    rig.log = {"t-0": [5, 7]}
    rig.worker.do(SubscribeStep(("t",), ("t-0",)))
    rig.worker.do(PollStep())
    rig.readers[-1].is_dead = True
    rig.worker.do(PollStep())
    rig.log["t-0"].append(9)
    rig.worker.do(PollStep())
    assert [operation.f for operation in rig.record] == ["subscribe", "poll", "poll", "subscribe", "poll"]
    assert rig.record[-1].ops == (Poll({"t-0": [(2, 9)]}),)
    assert rig.made == ["None", "None"]
    rig.discarded.wait(60)
    assert rig.ended == [rig.readers[0]]


def test_a_change_between_assigned_and_subscribed_takes_another_consumer():
    rig = Rig()
    rig.worker.do(AssignStep(("t-0",), from_beginning=True))
    rig.worker.do(AssignStep(("t-1",), from_beginning=False))
    rig.worker.do(SubscribeStep(("t",), ("t-0",)))
    rig.worker.do(AssignStep(("t-0",), from_beginning=False))
    assert rig.made == ["reader", "None", "reader"]


def final_ops(rig: Rig) -> list[str]:
    assert all(operation.final for operation in rig.record)
    return [operation.f for operation in rig.record]


def test_the_final_read_runs_from_the_beginning_to_every_end():
    rig = Rig()
    rig.log = {"t-0": [5, 7], "t-1": []}
    rig.worker.positions = {"t-0": 2}
    assert read_all(rig.worker, {"t-0": 2, "t-1": 0}, 10**12, rig.tick) == {}
    assert final_ops(rig) == ["crash", "assign", "poll"]
    assert rig.record[2].ops == (Poll({"t-0": [(0, 5), (1, 7)]}),)


def test_a_final_reader_that_gets_nowhere_is_replaced():
    rig = Rig()
    rig.log = {"t-0": [5]}
    rig.stuck_readers = 1
    assert read_all(rig.worker, {"t-0": 1}, 10**12, rig.tick) == {}
    assert rig.made == ["reader", "reader"]
    assert FRESH_CLIENT_NS < rig.now < 2 * FRESH_CLIENT_NS


def test_the_final_read_reports_what_it_did_not_reach():
    rig = Rig()
    rig.log = {"t-0": [5], "t-1": [6, 8]}
    assert read_all(rig.worker, {"t-0": 4, "t-1": 0}, 15 * 10**9, rig.tick) == {"t-0": 1}
    assert rig.made == ["reader", "reader"]


def test_at_the_end_of_all_no_member_of_a_group_is_closed() -> None:
    """It may be asked to rebalance as it is closed, and then librdkafka may stop all of Python."""
    rig = Rig()
    rig.worker.do(SubscribeStep(("t",), ("t-0",)))
    rig.worker.do(SendStep((("t-0", 1),)))
    rig.worker.close()
    assert rig.discarded.wait(60.0) == 0
    assert rig.dropped == rig.readers
    assert [type(each) for each in rig.ended] == [Sender]


def test_a_client_that_fails_as_it_is_closed_is_gone_as_well() -> None:
    """pytest takes what ends a thread for a failure, and a run would print it over its own lines."""

    def end() -> None:
        raise SystemError("exception <class 'str'> is not a BaseException subclass")

    discarded = DiscardedClients()
    discarded.take(end)
    assert discarded.wait(60.0) == 0
