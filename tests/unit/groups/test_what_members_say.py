"""What the members of a group of the consumer protocol say of themselves is bounded, all together; and lists
that are equal are one."""

from __future__ import annotations

import pytest

from data_plane.coordinator.groups.consumer import cluster_view, membership
from data_plane.coordinator.groups.consumer.group import ConsumerGroup
from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from data_plane.coordinator.groups.consumer.state import ConsumerGroupState
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.unit.groups.clients import GROUP, ClassicClient, ConsumerClient
from tests.unit.groups.group_driver import GroupDriver
from tests.unit.groups.topics import Topics

pytestmark = pytest.mark.row("G6", "P7")

LONG = "\N{GRINNING FACE}" * 8_000
"""Takes 32 KB."""


def state(driver: GroupDriver) -> ConsumerGroupState:
    group = driver.manager.group(GROUP)
    assert isinstance(group, ConsumerGroup)
    return group.state


def joined(driver: GroupDriver, member_id: str, **fields: object) -> ErrorCode:
    asked: dict[str, object] = {
        "subscribed_topic_names": ("a",),
        "rebalance_timeout_ms": 1,
        "owned": {},
        **fields,
    }
    reply = driver.answer("consumer_heartbeat", ConsumerHeartbeat(GROUP, member_id, 0, **asked))  # type: ignore[arg-type]
    if isinstance(reply, BrokerError):
        return reply.code
    assert isinstance(reply, ConsumerHeartbeatReply)
    return ErrorCode.NONE


@pytest.mark.parametrize("named", ["instance_id", "rack_id", "client_id", "topic"])
def test_long_names_are_counted(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setattr(membership, "MOST_BYTES", 100_000)
    driver = GroupDriver()

    def long(number: int) -> dict[str, object]:
        name = f"{LONG}{number}"
        return {"subscribed_topic_names": (name,)} if named == "topic" else {named: name}

    outcomes = [joined(driver, f"m{number}", **long(number)) for number in range(6)]
    assert outcomes == [ErrorCode.NONE] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 3
    assert joined(driver, "m9") is ErrorCode.NONE
    assert state(driver).subscriptions.bytes <= 100_000


def test_who_says_no_more_than_before_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = GroupDriver()
    assert joined(driver, "m", client_id="client") is ErrorCode.NONE
    monkeypatch.setattr(membership, "MOST_BYTES", 0)
    assert joined(driver, "m", client_id="others") is ErrorCode.NONE
    assert joined(driver, "m", client_id="longer") is ErrorCode.NONE
    assert joined(driver, "m", client_id="the longest") is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert joined(driver, "m", client_id="") is ErrorCode.NONE


def test_ids_and_protocols_are_counted() -> None:
    driver = GroupDriver()
    ConsumerClient("m", ("a",)).beat(driver)
    before = state(driver).subscriptions.bytes
    joined(driver, LONG)
    assert state(driver).subscriptions.bytes - before == len(LONG.encode())
    before = state(driver).subscriptions.bytes
    classic = ClassicClient("c", tuple(f"topic {n}" for n in range(1000)))
    classic.beat(driver)
    said = [classic.name, classic.name + "1", "/127.0.0.1", "range", *classic.topics]
    assert state(driver).subscriptions.bytes - before >= sum(map(len, said)) + sum(map(len, classic.topics))


class Hashed(str):
    """A topic's name, by which the list that has it is hashed."""

    __slots__ = ()
    times = 0

    def __hash__(self) -> int:
        Hashed.times += 1
        return super().__hash__()


@pytest.mark.parametrize("members", [5, 20])
def test_a_list_that_many_members_have_is_kept_and_hashed_once(members: int) -> None:
    driver = GroupDriver()

    def join(member_id: str) -> int:
        before = Hashed.times
        assert joined(driver, member_id, subscribed_topic_names=(Hashed("a"), Hashed("b"))) is ErrorCode.NONE
        return Hashed.times - before

    times = [join(f"m{number}") for number in range(members)]
    assert max(times[2:]) == min(times[2:]) <= 30
    for each in (driver, driver.reloaded()):
        lists = [member.metadata.subscribed_topic_names for member in state(each).members.values()]
        assert all(one is lists[0] for one in lists)
        assert state(each).subscriptions.names == 2


def test_patterns_of_all_members_match_hardly_more_topics_than_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of them are resolved anew at once when topics change."""
    monkeypatch.setattr(cluster_view, "PATTERNS", 3)
    monkeypatch.setattr(cluster_view, "SPARE_NAMES", 0)
    topics = Topics()
    for number in range(10):
        topics.create(f"t{number}", 1)
    driver = GroupDriver(view=topics.view)

    def refusal(client: ConsumerClient) -> ErrorCode | None:
        refused = client.beat(driver)
        return None if refused is None else refused.code

    everything = [refusal(ConsumerClient(f"m{n}", regex=f"t.*|own{n}")) for n in range(4)]
    assert everything == [None] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert refusal(ConsumerClient("same", regex="t.*|own0")) is None
    assert refusal(ConsumerClient("not looked up", regex="none")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert topics.view.matches.matching("none") == ()
    assert refusal(ConsumerClient("nothing", regex="none")) is None
    assert state(driver).subscriptions.matches == 30
    assert state(driver).subscriptions.names == 10  # they match the same
    topics.create("t10", 1)
    assert refusal(ConsumerClient("late", regex="t.*|own9")) is ErrorCode.GROUP_MAX_SIZE_REACHED
