"""What the doctor makes of what brokers have answered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraft.cli import doctor
from kraft.cli.doctor import Finding, State
from kraft.cli.survey import ControllerView, Survey
from kraft.net.client import Address

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
    def led(*ends: int) -> Survey:
        voters = [SimpleNamespace(replica_id=i, log_end_offset=end) for i, end in enumerate(ends, start=1)]
        return Survey(quorum=SimpleNamespace(leader_id=1, leader_epoch=4, current_voters=voters))  # type: ignore[arg-type]

    assert doctor.quorum(led(5000, 4990, 5000)) == Finding(
        "metadata quorum", State.OK, "node 1 leads in epoch 4; 3 voters"
    )
    assert "far behind: 3" in doctor.quorum(led(5000, 5000, 7)).found
    assert state_of(doctor.quorum(led(5000, 5000, 7))) is State.WARNING
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


def test_long_lists_are_cut() -> None:
    many = metadata(*(partition(number, [1, 2], [1]) for number in range(8)))
    assert "t-0, t-1, t-2, t-3, t-4 and 3 more" in doctor.replicas(many).found
