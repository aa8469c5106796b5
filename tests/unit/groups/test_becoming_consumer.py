"""A classic group becomes one of the consumer protocol by one decision: so much is read for it."""

from __future__ import annotations

import pytest

from data_plane.coordinator.groups.classic.consumer_protocol import (
    PARTITIONS_AS_TOPIC,
    Allowance,
    read_assignment,
    read_subscription,
    write_assignment,
)
from data_plane.coordinator.groups.classic.group import ClassicGroup
from data_plane.coordinator.groups.classic.states import ClassicGroupConfig
from data_plane.coordinator.groups.consumer import upgrade
from data_plane.coordinator.groups.consumer.group import ConsumerGroup
from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeatReply
from data_plane.coordinator.groups.consumer.upgrade import MAX_NAMES
from data_plane.coordinator.groups.group_metadata_manager import GroupLimits, GroupMetadataManager
from data_plane.coordinator.groups.messages import (
    LeaveGroup,
    MemberIdentity,
    MemberProtocol,
    SyncGroup,
    SyncReply,
)
from data_plane.coordinator.state_machine import ALL
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.unit.groups.clients import ClassicClient, ConsumerClient
from tests.unit.groups.converting import BEAT, subscription
from tests.unit.groups.group_driver import GroupDriver, join
from tests.unit.groups.topics import Topics

pytestmark = pytest.mark.row("G6")


def group_of(subscriptions: list[bytes], max_batch_bytes: int = ALL) -> GroupDriver:
    """Of classic members that say so."""
    driver = GroupDriver()
    driver.manager = GroupMetadataManager(driver.limits, driver.view, lambda: max_batch_bytes)
    for number, says in enumerate(subscriptions):
        driver.ask("join", join(protocols=(MemberProtocol("range", says),), new=f"m{number}"))
    return driver


@pytest.mark.parametrize("is_too_much", [False, True])
def test_members_that_say_too_much_together_keep_a_classic_group(is_too_much: bool) -> None:
    members = 20
    driver = group_of([subscription(MAX_NAMES // members + is_too_much, f"-{n}") for n in range(members)])
    refusal = driver.answer("consumer_heartbeat", BEAT)
    assert isinstance(refusal, BrokerError) == is_too_much
    if isinstance(refusal, BrokerError):
        assert refusal.code is ErrorCode.GROUP_ID_NOT_FOUND
        assert "more topics or partitions than are read" in refusal.message


def test_what_they_all_say_counts_once() -> None:
    driver = group_of([subscription(1000)] * (MAX_NAMES // 1000 + 1))
    assert not isinstance(driver.answer("consumer_heartbeat", BEAT), BrokerError)
    group = driver.manager.group("g")
    assert isinstance(group, ConsumerGroup)
    assert group.state.subscriptions.names == 1000 + len(BEAT.subscribed_topic_names or ())


def test_lists_count_once_whatever_the_order_of_those_that_have_them() -> None:
    """More than are remembered as they are written."""
    kinds = 20
    driver = group_of([subscription(MAX_NAMES // 100, f"-{n % kinds}") for n in range(10 * kinds)])
    assert not isinstance(driver.answer("consumer_heartbeat", BEAT), BrokerError)


def test_of_more_members_than_a_batch_has_room_for_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their records would be made in vain, as often as a heartbeat comes."""
    subscriptions = [subscription(n % 5, f"-{n}") for n in range(100)]
    driver = group_of(subscriptions)
    before = len(driver.log)
    assert isinstance(driver.answer("consumer_heartbeat", BEAT), ConsumerHeartbeatReply)
    written = sum(len(key) + len(value or b"") for key, value in driver.log[before:])
    assert isinstance(
        group_of(subscriptions, written).answer("consumer_heartbeat", BEAT), ConsumerHeartbeatReply
    )
    monkeypatch.setattr(upgrade, "read_subscription", pytest.fail)
    refusal = group_of(subscriptions, written * 8 // 10).answer("consumer_heartbeat", BEAT)
    assert isinstance(refusal, BrokerError)
    assert (refusal.code, refusal.message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Cannot upgrade the classic group to a consumer group: 100 members are too many.",
    )


def test_topics_and_partitions_are_counted_before_they_are_read() -> None:
    few = write_assignment({"a": frozenset(range(PARTITIONS_AS_TOPIC)), "b": frozenset()}, 0)
    allowance = Allowance(10)
    assert set(read_assignment(few, allowance)) == {"a", "b"}
    assert read_subscription(subscription(5), allowance).topics == ("0", "1", "2", "3", "4")
    with pytest.raises(ValueError, match="than are read"):
        read_subscription(subscription(1), allowance)
    with pytest.raises(ValueError, match="than are read"):
        read_assignment(few, Allowance(4))


def test_a_cooperative_member_learns_what_it_is_to_give_up() -> None:
    """It would join and sync for ever, with all that it has: an assignment is what it gives up by."""
    topics = Topics()
    topics.create("a", 4)
    rules = ClassicGroupConfig(initial_rebalance_delay=0.0)
    driver = GroupDriver(GroupLimits(rules=rules), topics.view)
    classic, modern = ClassicClient("c", ("a",), cooperative=True), ConsumerClient("m", ("a",))
    for _ in range(3):
        classic.beat(driver)
    assert len(classic.owned) == 4
    for _ in range(8):
        modern.beat(driver)
        classic.beat(driver)
    assert (len(classic.owned), len(modern.owned)) == (2, 2)
    assert classic.to_do == "heartbeat"


def test_a_refused_upgrade_is_no_affair_of_those_that_sync() -> None:
    """The old group's tombstone was taken for its assignment: all of them met an error."""
    driver, says = GroupDriver(), (MemberProtocol("range", subscription(1)),)
    for each in ("m1", "m2"):
        driver.ask("join", join(new=each, protocols=says))
    driver.ask("join", join("m1", protocols=says))
    waiting = driver.ask("sync", SyncGroup("g", "m2", 2))
    driver.refusal = ErrorCode.UNKNOWN_SERVER_ERROR
    driver.ask("consumer_heartbeat", BEAT)
    assert waiting not in driver.answers
    driver.refusal = None
    driver.ask("sync", SyncGroup("g", "m1", 2, assignments={"m2": b"2"}))
    assert driver.answers[waiting] == SyncReply(ErrorCode.NONE, "consumer", "range", b"2")


def readers_of_all(topics: Topics, *clients: str) -> tuple[GroupDriver, list[ClassicClient]]:
    """Cooperative ones, of whom the first has joined, and reads all partitions of `a`."""
    topics.create("a", 2)
    rules = ClassicGroupConfig(initial_rebalance_delay=0.0)
    driver = GroupDriver(GroupLimits(rules=rules), topics.view)
    found = [ClassicClient(name, ("a",), cooperative=True) for name in clients]
    for _ in range(4):
        found[0].beat(driver)
    assert len(found[0].owned) == 2
    return driver, found


def test_what_a_member_reads_on_through_a_rebalance_is_given_to_nobody() -> None:
    """Another one joined, and left while the leader assigned; then the group changed its protocol."""
    driver, (reader, other) = readers_of_all(Topics(), "c", "e")
    other.beat(driver)
    reader.beat(driver)
    reader.beat(driver)
    driver.ask("leave", LeaveGroup("g", (MemberIdentity(f"{other.name}1", None),)))
    newcomer = ConsumerClient("n", ("a",))
    newcomer.beat(driver)
    assert isinstance(driver.manager.group("g"), ConsumerGroup)
    assert not newcomer.owned & reader.owned
    for _ in range(8):
        newcomer.beat(driver)
        reader.beat(driver)
    assert (len(newcomer.owned), len(reader.owned)) == (1, 1)


def test_what_a_member_has_yet_to_give_up_stays_its_own_while_the_group_changes_twice() -> None:
    driver, (reader,) = readers_of_all(Topics(), "c")
    leaves, newcomer = ConsumerClient("m", ("a",)), ConsumerClient("n", ("a",))
    leaves.beat(driver)
    for _ in range(2):
        reader.beat(driver)
    reads = set(reader.owned)
    reader.beat(driver)  # it is told what to give up, and its application has yet to do so
    assert len(reader.owned) == 1
    leaves.leave(driver)
    assert isinstance(driver.manager.group("g"), ClassicGroup)
    newcomer.beat(driver)
    assert isinstance(driver.manager.group("g"), ConsumerGroup)
    assert not newcomer.owned & reads
