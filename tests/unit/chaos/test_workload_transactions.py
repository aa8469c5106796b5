"""Transactions of a workload's clients, with a producer and a reader that do what their test says: what each
outcome proves, whose number it bears, where a copier goes on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from itertools import islice
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from chaos.history import AlteredRecord, Operation, Poll, Send
from chaos.workload import Endings, Mix, TopicSpec
from chaos.workload.copier import Copier, copy_the_rest
from chaos.workload.discard import DiscardedClients
from chaos.workload.generator import CopyStep, TransactStep, Values, copy_steps, steps
from chaos.workload.journal import Journal
from chaos.workload.producer import Dispatch
from chaos.workload.transactional import PATIENCE_S, TransactionalClient
from chaos.workload.transactor import Transactor

CLIENTS = 4
FENCED = KafkaError(KafkaError._FENCED, "fenced", fatal=True)
ABORT = KafkaError(KafkaError.INVALID_TXN_STATE, "abort it", txn_requires_abort=True)
LATER = KafkaError(KafkaError._TIMED_OUT, "later", retriable=True)


class Rig:
    """One client: its cluster, a clock, the record, and what goes wrong: by call, the next troubles."""

    def __init__(self) -> None:
        self.now = 0
        self.record: list[Operation] = []
        self.troubles: dict[str, list[KafkaError]] = {}
        self.acking = True
        self.calls: list[str] = []
        self.offsets = iter(range(100))
        self.discarded = DiscardedClients()
        self.journal = Journal(1, CLIENTS, self.tick, self.record.append)
        self.made: list[TransactionalClient] = []
        self.transactor = Transactor("id", self.make, self.journal, self.discarded)

    def make(self) -> TransactionalClient:
        sender: Any = Sender(self)
        self.made.append(TransactionalClient(sender, self.tick))
        return self.made[-1]

    def tick(self) -> int:
        self.now += 1
        return self.now

    def outcomes(self) -> list[tuple[int, str, str]]:
        return [(each.process, each.f, each.outcome) for each in self.record]


class Sender:
    """In place of SendingClient; it is its own producer, too."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.producer = self

    def send(self, sends: Sequence[tuple[str, int]]) -> Dispatch:
        dispatch = Dispatch(sends, self.rig.tick)
        for place in range(len(sends)):
            if self.rig.acking:
                offset = next(self.rig.offsets)
                report: Any = type("Report", (), {"offset": lambda _, offset=offset: offset})()
                dispatch.report_to(place)(None, report)
            else:
                dispatch.refuse(place, "refused")
        return dispatch

    def wait(self, dispatch: Dispatch) -> None:
        pass

    def end(self) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Every call of the transactional API."""

        def call(*_: object) -> None:
            self.rig.calls.append(name.partition("_")[0])
            self.rig.now += 10**9
            troubles = self.rig.troubles.get(name, [])
            if troubles:
                raise KafkaException(troubles.pop(0))

        return call


SENDS = (("t-0", 1), ("t-1", 2))


def test_a_transaction_is_one_operation_and_records_when_its_commit_was_requested() -> None:
    rig = Rig()
    rig.transactor.do(TransactStep(SENDS, "commit"))
    assert rig.outcomes() == [(1, "init", "ok"), (1, "txn", "ok")]
    done = rig.record[1]
    assert done.ops == [Send("t-0", 1, 0), Send("t-1", 2, 1)]
    assert done.txn is not None
    assert done.txn.commit_asked is not None
    assert rig.record[0].end <= done.start < done.txn.commit_asked < done.end
    assert rig.calls == ["init", "begin", "commit"]


@pytest.mark.parametrize("ending", ["abort", "crash"])
def test_what_nobody_asked_to_commit_surely_does_not(ending: Any) -> None:
    rig = Rig()
    rig.troubles["abort_transaction"] = [FENCED]
    rig.transactor.do(TransactStep(SENDS, ending))
    rig.transactor.do(TransactStep(SENDS, "commit"))
    assert rig.outcomes() == [(1, "init", "ok"), (1, "txn", "fail"), (1, "init", "ok"), (1, "txn", "ok")]
    assert rig.record[1].txn is not None
    assert rig.record[1].txn.commit_asked is None
    assert len(rig.made) == 2, "neither a crashed nor a fenced producer is used again"


def test_a_commit_is_not_asked_for_where_a_send_was_not_acknowledged() -> None:
    rig = Rig()
    rig.acking = False
    rig.transactor.do(TransactStep(SENDS, "commit"))
    assert rig.outcomes() == [(1, "init", "ok"), (1, "txn", "fail")]
    assert rig.calls == ["init", "begin", "abort"]


def test_a_commit_without_an_answer_is_unknown_and_retires_the_number() -> None:
    rig = Rig()
    rig.troubles["commit_transaction"] = [LATER] * 2 * int(PATIENCE_S)
    rig.transactor.do(TransactStep(SENDS, "commit"))
    rig.transactor.do(TransactStep(SENDS, "commit"))
    assert rig.outcomes()[1:] == [(1, "txn", "info"), (5, "init", "ok"), (5, "txn", "info")]
    assert rig.calls.count("commit") > 2, "it is asked for as long as that may help"


def test_a_commit_that_must_be_aborted_and_was_is_known() -> None:
    rig = Rig()
    rig.troubles["commit_transaction"] = [ABORT]
    rig.transactor.do(TransactStep(SENDS, "commit"))
    assert rig.outcomes() == [(1, "init", "ok"), (1, "txn", "fail")]
    rig.troubles = {"commit_transaction": [ABORT], "abort_transaction": [FENCED]}
    rig.transactor.do(TransactStep(SENDS, "commit"))
    assert rig.outcomes()[2:] == [(1, "txn", "info")]


def test_a_zombie_writes_on_under_its_old_number_behind_its_successor() -> None:
    rig = Rig()
    rig.transactor.do(TransactStep(SENDS, "zombie", late=(("t-0", 3),)))
    assert rig.outcomes() == [(1, "init", "ok"), (5, "init", "ok"), (1, "txn", "ok")]
    takeover, zombie = rig.record[1:]
    assert [send.value for send in zombie.ops if isinstance(send, Send)] == [1, 2, 3]
    assert zombie.txn is not None
    assert zombie.txn.commit_asked is not None
    assert zombie.start < takeover.start < takeover.end < zombie.txn.commit_asked
    rig.transactor.do(TransactStep(SENDS, "commit"))
    assert rig.outcomes()[3:] == [(5, "txn", "ok")], "the successor goes on"


def test_an_id_that_nobody_gives_out_is_asked_for_again_by_another_process() -> None:
    rig = Rig()
    rig.troubles["init_transactions"] = [FENCED]
    rig.transactor.do(TransactStep(SENDS, "commit"))
    rig.transactor.do(TransactStep(SENDS, "commit"))
    assert rig.outcomes() == [(1, "init", "info"), (5, "init", "ok"), (5, "txn", "ok")]


# Copiers ----------------------------------------------------------------------------------------------------


class Reader:
    is_dead = False

    def __init__(self, log: Mapping[str, list[int]], committed: Mapping[str, int]) -> None:
        self.log = log
        self.at = dict(committed)

    def subscribe(self, topics: Iterable[str]) -> None:
        pass

    def poll(
        self, timeout_s: float, places: MutableMapping[str, int], most: int
    ) -> dict[str, list[tuple[int, int]]]:
        found = {}
        for key, values in self.log.items():
            pairs = list(enumerate(values))[self.at.get(key, 0) :][:2]
            if pairs:
                found[key] = pairs
                self.at[key] = places[key] = pairs[-1][0] + 1
        return found

    def seek(self, places: Mapping[str, int]) -> bool:
        self.at |= places
        return True

    def end_of(self, key: str) -> int:
        return len(self.log[key])

    def group_metadata(self) -> None:
        return None

    def take_rebalanced(self) -> tuple[str, ...]:
        return ()

    def take_error(self) -> str | None:
        return None

    def take_altered(self) -> tuple[AlteredRecord, ...]:
        return ()

    def note_news(self, journal: Journal) -> None:
        pass

    def end(self) -> None:
        pass


def copier(rig: Rig, log: Mapping[str, list[int]]) -> tuple[Copier, list[Reader]]:
    readers: list[Reader] = []

    def member() -> Any:
        committed = {
            key: reach
            for operation in rig.record
            if operation.outcome == "ok" and operation.txn is not None
            for key, (_, reach) in operation.txn.consumed.items()
        }
        readers.append(Reader(log, committed))
        return readers[-1]

    made = Copier(
        iter(()), TopicSpec("in", partitions=1), ("out-0", "out-1"), Values(1, CLIENTS), "group",
        transactor=rig.transactor, member=member, journal=rig.journal, discarded=rig.discarded,
    )  # fmt: skip
    return made, readers


def consumed(operation: Operation) -> tuple[str, Sequence[int]]:
    assert operation.txn is not None
    return operation.outcome, operation.txn.consumed["in-0"]


def test_every_input_has_an_output_in_the_same_transaction_and_what_is_aborted_is_read_again() -> None:
    rig = Rig()
    made, _ = copier(rig, {"in-0": [7, 8, 9]})
    for ending in ("abort", "commit", "commit", "commit"):
        made.copy(ending)  # type: ignore[arg-type]
    transactions = [operation for operation in rig.record if operation.f == "txn"]
    assert [consumed(each) for each in transactions] == [("fail", (0, 2)), ("ok", (0, 2)), ("ok", (2, 3))]
    polled, *sent = transactions[1].ops
    assert isinstance(polled, Poll)
    assert polled.messages == {"in-0": [(0, 7), (1, 8)]}
    assert polled.at is not None
    assert transactions[1].start < polled.at < transactions[1].end
    assert len(sent) == 2
    assert transactions[1].txn is not None
    assert transactions[1].txn.group == "group"
    assert rig.record[-1].f == "poll", "nothing was left"


def test_after_a_crash_the_next_member_continues_where_the_group_has_committed() -> None:
    rig = Rig()
    made, readers = copier(rig, {"in-0": [7, 8, 9]})
    made.copy("commit")
    made.copy("crash")
    made.copy("commit")
    transactions = [operation for operation in rig.record if operation.f == "txn"]
    assert [consumed(each) for each in transactions] == [("ok", (0, 2)), ("fail", (2, 3)), ("ok", (2, 3))]
    assert len(readers) == len(rig.made) == 2


def test_offsets_that_are_refused_are_not_committed() -> None:
    rig = Rig()
    rig.troubles["send_offsets_to_transaction"] = [ABORT]
    made, _ = copier(rig, {"in-0": [7]})
    made.copy("commit")
    assert rig.calls == ["init", "begin", "send", "abort"]
    assert consumed(rig.record[-1]) == ("fail", (0, 1))


def test_copies_go_to_every_partition() -> None:
    """Though the numbers of a copier may all be odd."""
    rig = Rig()
    made, _ = copier(rig, {"in-0": [7, 8, 9]})
    made.copy("commit")
    made.copy("commit")
    sent = [micro.key for operation in rig.record for micro in operation.ops if isinstance(micro, Send)]
    assert sent == ["out-0", "out-1", "out-0"]


def test_the_rest_is_copied_at_the_end() -> None:
    rig = Rig()
    made, _ = copier(rig, {"in-0": list(range(9))})
    copy_the_rest([made], made, 10**15, rig.tick)
    reach = [
        operation.txn.consumed["in-0"][1]
        for operation in rig.record
        if operation.f == "txn" and operation.txn
    ]
    assert reach[-1] == 9


# Wishes -----------------------------------------------------------------------------------------------------


def test_who_writes_in_transactions_sends_nothing_outside_of_them() -> None:
    rng, written = random.Random(3), ("t-0", "t-1", "t-2")
    mix = Mix(crash=5, endings=Endings(commit=5, abort=1, crash=1, zombie=1))
    drawn = list(islice(steps(rng, mix, Values(0, 4), written, written, transactional=True), 2_000))
    found = [step for step in drawn if isinstance(step, TransactStep)]
    assert {step.ending for step in found} == {"commit", "abort", "crash", "zombie"}
    assert {bool(step.late) for step in found if step.ending == "zombie"} == {True, False}
    assert not any(step.late for step in found if step.ending != "zombie")
    assert max(len({key for key, _ in step.sends}) for step in found) == len(written)
    assert not any(getattr(step, "sends", ()) for step in drawn if not isinstance(step, TransactStep))


def test_a_copier_draws_how_its_transactions_end() -> None:
    endings = Endings(commit=1, abort=1, crash=0, zombie=0)
    drawn = set(islice(copy_steps(random.Random(1), endings), 50))
    assert drawn == {CopyStep("commit"), CopyStep("abort")}


def test_topics_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="acks"):
        TopicSpec("t", acks=1, transactional=True)
    with pytest.raises(ValueError, match="copies"):
        TopicSpec("t", copy_of="u")
