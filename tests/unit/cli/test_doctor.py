"""What the doctor makes of what brokers have answered."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from kraft.api.config_validation import check_broker_values
from kraft.cli import doctor
from kraft.cli.doctor import Finding, State
from kraft.cli.doctor_questions import GroupHealth, Hanging
from kraft.cli.survey import ControllerView, Survey
from kraft.net.client import Address
from metadata_quorum.foundation.model import TopicPartition

AT = {node_id: Address("127.0.0.1", 9091 + node_id) for node_id in (1, 2, 3)}


def partition(number: int, replicas: list[int], isr: list[int], leader: int | None = None) -> Any:
    return SimpleNamespace(
        partition_index=number, replica_nodes=replicas, isr_nodes=isr, leader_id=leader or replicas[0]
    )


def metadata(*partitions: Any, brokers: tuple[int, ...] = (1, 2, 3)) -> Any:
    return SimpleNamespace(
        brokers=[SimpleNamespace(node_id=i, host=AT[i].host, port=AT[i].port) for i in brokers],
        topics=[SimpleNamespace(name="t", is_internal=False, partitions=list(partitions))],
    )


def state_of(finding: Finding) -> State:
    """Advice stands where something is wrong, and only there."""
    assert (finding.advice is None) == (finding.state is State.OK)
    return finding.state


def test_brokers_and_leaders() -> None:
    known = metadata(partition(0, [1, 2], [1, 2]), partition(1, [2, 3], [2]))
    whole = Survey({AT[1]: known, AT[2]: known, AT[3]: known})
    assert state_of(doctor.brokers(whole)) is state_of(doctor.leaders(whole)) is State.OK
    one_dead = Survey({AT[1]: known, AT[3]: known}, {AT[2]: "refuses connections"})
    assert doctor.brokers(one_dead).found == "broker 2 (127.0.0.1:9093) refuses connections"
    assert doctor.leaders(one_dead).found == "none that answers: t-1"
    assert state_of(doctor.brokers(one_dead)) is state_of(doctor.leaders(one_dead)) is State.ERROR


def test_the_quorum() -> None:
    def led(*ends: int, silent_ms: int = 0) -> Survey:
        """`silent_ms`: how long the last voter has not caught up, by the leader's clock."""
        caught_up = [1_000_000] * (len(ends) - 1) + [1_000_000 - silent_ms]
        voters = [
            SimpleNamespace(replica_id=i, log_end_offset=end, last_caught_up_timestamp=at)
            for i, (end, at) in enumerate(zip(ends, caught_up, strict=True), start=1)
        ]
        return Survey(quorum=SimpleNamespace(leader_id=1, leader_epoch=4, current_voters=voters))  # type: ignore[arg-type]

    assert doctor.quorum(led(5000, 4990, 5000)) == Finding(
        "metadata quorum", State.OK, "node 1 leads in epoch 4; 3 voters"
    )
    assert "far behind: 3" in doctor.quorum(led(5000, 5000, 7)).found
    assert state_of(doctor.quorum(led(5000, 5000, 7))) is State.WARNING
    assert state_of(doctor.quorum(led(5000, 5000, 5000, silent_ms=2_000))) is State.OK
    assert "far behind: 3" in doctor.quorum(led(5000, 5000, 5000, silent_ms=60_000)).found
    lost = Survey(
        controllers=[
            ControllerView(1, AT[1], "refuses connections"),
            ControllerView(2, AT[2], "", -1, 9),
            ControllerView(3, AT[3], "does not answer"),
        ]
    )
    assert "controller 2 says that nobody leads in epoch 9" in doctor.quorum(lost).found
    assert "bring back 2 of the controllers" in (doctor.quorum(lost).advice or "")
    assert state_of(doctor.quorum(lost)) is State.ERROR


def test_replicas_copies_and_balance() -> None:
    well = metadata(partition(0, [1, 2, 3], [1, 2, 3]))
    assert {state_of(check(well)) for check in (doctor.replicas, doctor.copies, doctor.balance)} == {State.OK}
    ill = metadata(partition(0, [1, 2, 3], [2, 3], leader=2), partition(1, [3], [3]))
    assert "out of sync: t-0 (brokers 1)" in doctor.replicas(ill).found
    assert doctor.copies(ill).found == "one only: t"
    assert doctor.balance(ill).found.startswith("1 of 2 partitions")
    assert {state_of(check(ill)) for check in (doctor.replicas, doctor.copies, doctor.balance)} == {
        State.WARNING
    }
    assert state_of(doctor.copies(metadata(partition(0, [1], [1]), brokers=(1,)))) is State.OK


def test_log_dirs() -> None:
    def directory(usable_gb: int, error_code: int = 0) -> Any:
        giga = doctor.BYTES_PER_GB
        return SimpleNamespace(
            log_dir="/data", error_code=error_code, total_bytes=100 * giga, usable_bytes=usable_gb * giga
        )

    assert doctor.log_dirs({1: [directory(50)], 2: [directory(40)]}).found == (
        "all online, 40.0 GB left where it is least"
    )
    assert state_of(doctor.log_dirs({1: [directory(5)]})) is State.WARNING
    assert doctor.log_dirs({2: [directory(50, error_code=56)]}).found == "failed: /data of broker 2"


def test_a_broker_counts_once_whatever_it_is_called() -> None:
    known = metadata(partition(0, [1, 2], [1, 2]))
    asked = Survey({Address("localhost", 9092): known, AT[1]: known, AT[2]: known, AT[3]: known})
    assert doctor.brokers(asked).found == "3 answer"


def test_registrations() -> None:
    assert state_of(doctor.registrations([])) is State.OK
    assert state_of(doctor.registrations([2])) is State.ERROR
    assert doctor.registrations([2, 7]).found == "fenced: broker 2, 7"


def test_too_few_in_sync_for_acks_all() -> None:
    ill = metadata(partition(0, [1, 2, 3], [1]), partition(1, [1, 2, 3], [1, 2]))
    assert state_of(doctor.acks_all(ill, {"t": 1})) is State.OK
    assert doctor.acks_all(ill, {"t": 2}).found == "refused, too few in sync: t-0"
    assert state_of(doctor.acks_all(ill, {"t": 2})) is State.ERROR
    assert state_of(doctor.acks_all(ill, {})) is State.OK, "its configuration is hidden from us"


def test_transactions_and_groups() -> None:
    assert state_of(doctor.transactions([])) is State.OK
    hanging = doctor.transactions(["payments"])
    assert state_of(hanging) is State.WARNING
    assert "kraft txn describe payments" in (hanging.advice or "")
    reading = GroupHealth("reading", "Stable", 2, 7)
    assert doctor.groups([reading]).found == "1, reading is 7 behind"
    assert state_of(doctor.groups([])) is State.OK
    left = doctor.groups([reading, GroupHealth("left", "Empty", 0, 5), GroupHealth("done", "Empty", 0, 0)])
    assert (state_of(left), left.found) == (State.WARNING, "behind, with no member: left (5)")
    moving = doctor.groups([GroupHealth("moving", "PreparingRebalance", 2, 0)])
    assert (state_of(moving), moving.found) == (State.WARNING, "not reading: moving (PreparingRebalance)")


def test_what_nobody_ends_and_groups_that_stand_still() -> None:
    assert state_of(doctor.hanging([])) is state_of(doctor.progress([])) is State.OK
    hanging = doctor.hanging([Hanging(TopicPartition("t", 0), 7, 3)])
    assert (state_of(hanging), hanging.found) == (
        State.ERROR, "no coordinator knows: producer 7 on t-0 from offset 3"
    )  # fmt: skip
    assert (hanging.advice or "").endswith("kraft txn abort --topic t --partition 0 --start-offset 3")
    stuck = doctor.progress(["readers (at 3 of t-0)"])
    assert (state_of(stuck), stuck.found) == (
        State.WARNING, "behind, and committed nothing: readers (at 3 of t-0)"
    )  # fmt: skip


def test_certificates_and_clocks() -> None:
    day = doctor.SECONDS_PER_DAY
    assert state_of(doctor.certificates({}, 0)) is State.OK
    assert doctor.certificates({1: 400 * day, 2: 90 * day}, 0).found == "the first ends in 90 days"
    ending = doctor.certificates({1: 400 * day, 2: 12.5 * day}, 0)
    assert (state_of(ending), ending.found) == (State.WARNING, "end soon: broker 2 in 12 days")
    ((key, value),) = re.findall(r"(\S+)=(\S+)", ending.advice or "")
    check_broker_values({key: value}, per_broker=True)  # what is advised is taken
    assert state_of(doctor.clocks({})) is state_of(doctor.clocks({1: -0.9, 2: 1.1})) is State.OK
    wrong = doctor.clocks({1: -0.9, 3: -3600.4})
    assert (state_of(wrong), wrong.found) == (State.WARNING, "differ from ours: broker 3 by -3600 s")


def test_long_lists_are_cut() -> None:
    many = metadata(*(partition(number, [1, 2], [1]) for number in range(8)))
    assert "t-0, t-1, t-2, t-3, t-4 and 3 more" in doctor.replicas(many).found
