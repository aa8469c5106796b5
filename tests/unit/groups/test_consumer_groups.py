"""Groups of the consumer protocol, one rule after the other: fencing, static members, timeouts, offsets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from data_plane.coordinator.groups.classic.states import ClassicGroupConfig
from data_plane.coordinator.groups.consumer import cluster_view
from data_plane.coordinator.groups.consumer.messages import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribedConsumerGroup,
)
from data_plane.coordinator.groups.consumer.rules import ConsumerGroupConfig, MigrationPolicy
from data_plane.coordinator.groups.group_metadata_manager import GroupLimits
from data_plane.coordinator.groups.messages import (
    CommitOffsets,
    CommitReply,
    FetchOffsets,
    GroupType,
    LeaveGroup,
    LeaveReply,
    ListedGroup,
    MemberIdentity,
    OffsetsReply,
    OffsetToCommit,
)
from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.unit.groups.clients import GROUP, ClassicClient, ConsumerClient
from tests.unit.groups.group_driver import GroupDriver
from tests.unit.groups.topics import Topics

pytestmark = pytest.mark.row("G6")

PLACE = TopicPartition("a", 0)


@pytest.fixture
def topics() -> Topics:
    topics = Topics()
    topics.create("a", 2)
    return topics


@pytest.fixture
def driver(topics: Topics) -> GroupDriver:
    return driven(topics)


def driven(topics: Topics, **rules: Any) -> GroupDriver:
    limits = GroupLimits(
        rules=ClassicGroupConfig(initial_rebalance_delay=0.0), consumer=ConsumerGroupConfig(**rules)
    )
    return GroupDriver(limits, topics.view)


def settle(driver: GroupDriver, *clients: ConsumerClient | ClassicClient) -> None:
    for _ in range(8):
        for client in clients:
            client.beat(driver)


def refused(answer: object) -> ErrorCode:
    assert isinstance(answer, BrokerError), answer
    return answer.code


def beat(driver: GroupDriver, member_id: str, epoch: int, **fields: Any) -> object:
    return driver.answer("consumer_heartbeat", ConsumerHeartbeat(GROUP, member_id, epoch, **fields))


def described(driver: GroupDriver) -> DescribedConsumerGroup:
    answer = driver.answer("describe_consumer", GROUP)
    assert isinstance(answer, DescribedConsumerGroup)
    return answer


def commit(driver: GroupDriver, member_id: str, epoch: int, **fields: Any) -> ErrorCode:
    request = CommitOffsets(GROUP, (OffsetToCommit(PLACE, 7),), member_id, epoch, **fields)
    answer = driver.answer("commit", request)
    assert isinstance(answer, CommitReply)
    return answer.errors[PLACE]


def test_a_member_is_fenced_by_any_epoch_but_its_own_and_the_one_whose_answer_was_lost(
    driver: GroupDriver, topics: Topics
) -> None:
    member = ConsumerClient("m", ("a",))
    settle(driver, member)
    topics.grow("a", 3)
    settle(driver, member)
    topics.grow("a", 4)
    member.beat(driver, lose_answer=True)
    epoch = described(driver).epoch
    assert member.epoch == epoch - 1
    for wrong in (epoch - 2, epoch + 1):
        assert refused(beat(driver, "m1", wrong)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(beat(driver, "m1", epoch - 1)) is ErrorCode.FENCED_MEMBER_EPOCH  # does not say what it has
    assert member.beat(driver) is None
    assert (member.epoch, len(member.owned)) == (epoch, 4)
    assert refused(beat(driver, "stranger", epoch)) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("amid", ["nothing", "giving up", "waiting for others"])
def test_a_fenced_member_joins_again_under_its_own_id(driver: GroupDriver, amid: str) -> None:
    """It was refused until its session had ended (KAFKA-19233)."""
    fenced, other = ConsumerClient("m", ("a",)), ConsumerClient("n", ("a",))
    settle(driver, fenced)
    fenced.slow = amid != "nothing"
    settle(driver, fenced, other)
    if amid == "waiting for others":
        fenced, other = other, fenced
    assert refused(beat(driver, fenced.member_id, 77)) is ErrorCode.FENCED_MEMBER_EPOCH
    fenced.owned.clear()
    fenced.assigned, fenced.epoch, fenced.says_all = None, 0, True
    fenced.slow = other.slow = False
    assert fenced.beat(driver) is None
    settle(driver, fenced, other)
    assert (len(fenced.owned), len(other.owned)) == (1, 1)
    assert not fenced.owned & other.owned


def test_a_group_that_is_not_there_is_only_found_by_joining(driver: GroupDriver) -> None:
    for epoch in (1, -1, -2):
        assert refused(beat(driver, "m1", epoch)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert refused(driver.answer("describe_consumer", GROUP)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.log == []


def test_a_heartbeat_without_news_writes_nothing_and_gets_nothing(driver: GroupDriver) -> None:
    member = ConsumerClient("m", ("a",))
    settle(driver, member)
    written = len(driver.log)
    reply = beat(driver, "m1", member.epoch, client_id="m", client_host="/127.0.0.1")
    assert reply == ConsumerHeartbeatReply("m1", member.epoch, 5_000, None)
    assert len(driver.log) == written


def test_a_full_group_takes_no_one_new(topics: Topics) -> None:
    driver = driven(topics, max_size=1)
    first, second = ConsumerClient("m", ("a",)), ConsumerClient("n", ("a",))
    settle(driver, first)
    refusal = second.beat(driver)
    assert refusal is not None
    assert refusal.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert first.beat(driver) is None


def test_members_name_hardly_more_topics_than_there_are(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are gone through at once when one changes. Who reads less is taken."""
    monkeypatch.setattr(cluster_view, "SPARE_NAMES", 9)  # and one topic
    monkeypatch.setattr(cluster_view, "SUBSCRIPTIONS", 4)
    driver = driven(topics)

    def refusal(client: ConsumerClient) -> ErrorCode | None:
        refused = client.beat(driver)
        return None if refused is None else refused.code

    ten = tuple(f"t{n}" for n in range(10))
    assert refusal(ConsumerClient("m", (*ten, "one more"))) is ErrorCode.GROUP_MAX_SIZE_REACHED
    alike = [ConsumerClient(f"like{n}", ten) for n in range(9)]
    assert [refusal(each) for each in alike] == [None] * 9
    others = [ConsumerClient(f"other{n}", (*ten[1:], f"own{n}")) for n in range(4)]
    assert [refusal(each) for each in others] == [None] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED]
    monkeypatch.setattr(cluster_view, "SPARE_NAMES", 2)  # as if many topics had been deleted
    assert refusal(replace(others[0], topics=("a",), says_all=True)) is None
    assert refusal(replace(alike[0], topics=("b",), says_all=True)) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_members_that_look_for_topics_at_different_times_are_taken(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics come and go, and clients with a pattern of their own look every few minutes."""
    monkeypatch.setattr(cluster_view, "SPARE_NAMES", 10)
    for number in range(99):
        topics.create(f"t{number}", 1)
    driver = driven(topics)
    seen = [tuple(f"t{n}" for n in range(99) if n != gone) for gone in range(30)]
    assert [ConsumerClient(f"m{n}", names).beat(driver) for n, names in enumerate(seen)] == [None] * 30


def test_a_pattern_that_is_none_is_refused(driver: GroupDriver) -> None:
    refusal = ConsumerClient("m", regex="a(").beat(driver)
    assert refusal is not None
    assert refusal.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert driver.log == []


def test_patterns_follow_topics_and_what_the_member_may_see(driver: GroupDriver, topics: Topics) -> None:
    topics.create("ab", 1)
    topics.create("ba", 1)
    member = ConsumerClient("m", regex="a.*")
    settle(driver, member)
    assert sorted(map(topics.named, member.owned)) == ["a-0", "a-1", "ab-0"]
    topics.create("ac", 1)
    topics.delete("ab")
    settle(driver, member)
    assert sorted(map(topics.named, member.owned)) == ["a-0", "a-1", "ac-0"]
    driver.advance(15.0)
    blind: dict[str, Any] = {"may_see": lambda topic: topic != "a"}
    beat(driver, "m1", member.epoch, **blind)
    assert len(described(driver).members[0].member.assigned) == 2  # not looked at again yet
    for _ in range(40):
        driver.advance(15.0)
        beat(driver, "m1", described(driver).members[0].member.epoch, owned={}, **blind)
    assigned = described(driver).members[0].member.assigned
    assert {topics.view.topic_name(topic_id) for topic_id in assigned} == {"ac"}


def names(topics: Topics, client: ConsumerClient) -> set[str | None]:
    """Of the topics that a client has partitions of."""
    return {topics.view.topic_name(topic_id) for topic_id, _ in client.owned}


def test_who_names_topics_has_those_before_what_its_pattern_stands_for(
    driver: GroupDriver, topics: Topics
) -> None:
    """As librdkafka's own test 0045 has it of Apache Kafka."""
    topics.create("b", 4)
    topics.create("ba", 1)
    member = ConsumerClient("m", ("a",), regex="b.*")
    assert member.beat(driver) is None
    assert names(topics, member) == {"a"}
    epoch = member.epoch
    settle(driver, member)
    assert names(topics, member) == {"a", "b", "ba"}
    assert member.epoch > epoch


def test_a_pattern_for_what_others_read_already_is_a_change_too(driver: GroupDriver, topics: Topics) -> None:
    """All topics of the group stay the same, but who reads them does not."""
    topics.create("b", 4)
    first, second = ConsumerClient("m", ("a", "b")), ConsumerClient("n", ("a",), regex="b")
    settle(driver, first, second)
    assert "b" in names(topics, second)


def test_sessions_end_and_a_group_has_its_own(driver: GroupDriver, topics: Topics) -> None:
    topics.set_group(GROUP, consumer_session_timeout_ms="50000", consumer_heartbeat_interval_ms="6000")
    silent, talking = ConsumerClient("m", ("a",)), ConsumerClient("n", ("a",))
    settle(driver, silent, talking)
    assert beat(driver, "n1", talking.epoch) == ConsumerHeartbeatReply("n1", talking.epoch, 6_000)
    driver.advance(30.0)
    talking.beat(driver)
    driver.advance(19.9)
    assert len(described(driver).members) == 2
    driver.advance(0.2)
    talking.beat(driver)
    assert len(described(driver).members) == 1
    assert len(talking.owned) == 2
    refusal = silent.beat(driver)
    assert refusal is not None
    assert refusal.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_that_is_made_shorter_ends_sooner(driver: GroupDriver, topics: Topics) -> None:
    """It ended when it would have before."""
    member = ConsumerClient("m", ("a",))
    settle(driver, member)
    topics.set_group(GROUP, consumer_session_timeout_ms="10000")
    member.beat(driver)
    driver.advance(10.1)
    assert described(driver).members == ()


def test_who_could_not_join_leaves_nothing_behind(driver: GroupDriver) -> None:
    """At the end of what would have been its session the group rebalanced."""
    member, late = ConsumerClient("m", ("a",)), ConsumerClient("n", ("a",))
    settle(driver, member)
    driver.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
    late.beat(driver)
    driver.refusal = None
    epoch, written = described(driver).epoch, len(driver.log)
    for _ in range(10):
        driver.advance(9.0)
        member.beat(driver)
    assert (described(driver).epoch, len(driver.log)) == (epoch, written)


def test_an_assignor_that_is_not_here_has_no_vote(driver: GroupDriver) -> None:
    """Another make's broker may have taken it; every heartbeat of the group failed."""
    members = [ConsumerClient("m", ("a",), assignor="rack"), ConsumerClient("n", ("a",), assignor="range")]
    settle(driver, *members)
    assert described(driver).assignor == "range"
    assert [len(member.owned) for member in members] == [1, 1]


def test_a_session_that_could_not_be_ended_is_ended_later(driver: GroupDriver) -> None:
    settle(driver, ConsumerClient("m", ("a",)))
    driver.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.advance(46.0)
    assert described(driver).state == "Stable"
    driver.refusal = None
    driver.advance(2.0)
    assert described(driver).state == "Empty"


def test_who_does_not_give_up_partitions_in_time_is_out(driver: GroupDriver) -> None:
    slow, second = ConsumerClient("m", ("a",)), ConsumerClient("n", ("a",))
    settle(driver, slow)
    slow.slow = True
    second.beat(driver)
    for _ in range(6):  # a new coordinator waits again, but not forever
        slow.beat(driver)
        second.beat(driver)
        driver.advance(9.0)
    driver = driver.reloaded()
    assert len(described(driver).members) == 2
    for _ in range(7):
        slow.beat(driver)
        second.beat(driver)
        driver.advance(9.0)
    second.beat(driver)
    assert (len(second.owned), len(described(driver).members)) == (2, 1)


def test_who_leaves_amid_giving_up_partitions_comes_back_to_all_of_them(
    driver: GroupDriver, topics: Topics
) -> None:
    """Under the same id, with another subscription, many times in a row (librdkafka's 0045)."""
    for name in "bcdef":
        topics.create(name, 2)
    client = ConsumerClient("m", ("a", "b"))
    settle(driver, client)
    for names in ("bc", "cd", "de", "ef", "fa"):
        client.slow = True
        client.resubscribe(*names)
        client.beat(driver)
        client.beat(driver)
        (member,) = described(driver).members
        assert member.member.pending_revocation
        client.leave(driver)
        client.lives, client.slow = 1, False
        assert described(driver).members == ()
        client.beat(driver)
        assert {topics.named(each)[0] for each in client.owned} == set(names)
        assert len(client.owned) == 4
    settle(driver, client)
    (member,) = described(driver).members
    assert member.member.assigned == member.target


def test_a_static_member_keeps_its_place_while_it_is_away(driver: GroupDriver) -> None:
    first, second = ConsumerClient("m", ("a",), instance="i"), ConsumerClient("n", ("a",))
    settle(driver, first, second)
    had, epoch = set(first.owned), described(driver).epoch
    intruder = replace(first, name="x", epoch=0, owned=set(), says_all=True)
    refusal = intruder.beat(driver)
    assert refusal is not None
    assert refusal.code is ErrorCode.UNRELEASED_INSTANCE_ID
    first.leave(driver, for_now=True)
    first.beat(driver)
    assert (first.owned, described(driver).epoch) == (had, epoch)
    old = ConsumerHeartbeat(GROUP, "m1", epoch, "i")
    assert refused(driver.answer("consumer_heartbeat", old)) is ErrorCode.FENCED_INSTANCE_ID
    first.leave(driver, for_now=True)
    second.beat(driver)
    driver.advance(44.0)
    second.beat(driver)
    driver.advance(2.0)
    settle(driver, second)
    assert len(second.owned) == 2


def test_offsets_are_committed_and_fetched_in_the_members_own_epoch(driver: GroupDriver) -> None:
    member = ConsumerClient("m", ("a",))
    settle(driver, member)
    epoch = member.epoch
    assert commit(driver, "m1", epoch) is ErrorCode.NONE
    assert commit(driver, "m1", epoch - 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(driver, "m1", epoch, knows_epochs=False) is ErrorCode.UNSUPPORTED_VERSION
    assert commit(driver, "other", epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(driver, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    transactional = {"producer": ProducerIdAndEpoch(1, 0)}
    assert commit(driver, "m1", epoch - 1, **transactional) is ErrorCode.ILLEGAL_GENERATION
    for member_id, sent_epoch, code in (
        ("m1", epoch - 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("other", epoch, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        request = FetchOffsets(GROUP, None, member_id=member_id, member_epoch=sent_epoch)
        assert refused(driver.answer("fetch", request)) is code
    for fields in ({}, {"member_id": "m1", "member_epoch": epoch}):
        found = driver.answer("fetch", FetchOffsets(GROUP, None, **fields))
        assert isinstance(found, OffsetsReply)
        assert found.offsets[PLACE] is not None
    member.leave(driver)
    assert commit(driver, "", -1) is ErrorCode.NONE  # an administrator's


def test_a_group_is_listed_deleted_and_forgotten(driver: GroupDriver) -> None:
    member = ConsumerClient("m", ("a",))
    settle(driver, member)
    assert driver.listed() == (ListedGroup(GROUP, "consumer", "Stable", GroupType.CONSUMER),)
    assert refused(driver.answer("describe", GROUP)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert commit(driver, "m1", member.epoch) is ErrorCode.NONE
    deleted = driver.answer("delete_offsets", GROUP, [PLACE])
    assert isinstance(deleted, CommitReply)
    assert deleted.errors[PLACE] is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert driver.answer("delete", GROUP) is ErrorCode.NON_EMPTY_GROUP
    member.leave(driver)
    assert driver.answer("delete", GROUP) is ErrorCode.NONE
    assert driver.listed() == driver.reloaded().listed() == ()
    assert driver.answer("fetch", FetchOffsets(GROUP, None)) == OffsetsReply({})


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets(driver: GroupDriver) -> None:
    modern, classic = ConsumerClient("m", ("a",)), ClassicClient("c", ("a",))
    settle(driver, classic)
    assert commit(driver, classic.member_id, classic.generation) is ErrorCode.NONE
    classic.leave(driver)
    for client, kind in ((modern, GroupType.CONSUMER), (classic, GroupType.CLASSIC)):
        settle(driver, client)
        assert len(client.owned) == 2
        for each in (driver, driver.reloaded()):
            (listed,) = each.listed()  # type: ignore[misc]
            assert (listed.state, listed.type) == ("Stable", kind)
            assert isinstance(each.answer("fetch", FetchOffsets(GROUP, None)), OffsetsReply)
        client.leave(driver)


@pytest.mark.parametrize("policy", MigrationPolicy)
def test_the_policy_says_which_way_a_group_may_go(topics: Topics, policy: MigrationPolicy) -> None:
    driver = driven(topics, migration=policy)
    modern, classic = ConsumerClient("m", ("a",)), ClassicClient("c", ("a",))
    settle(driver, classic)
    refusal = modern.beat(driver)
    assert (refusal is None) == policy.upgrades
    if refusal is not None:
        assert refusal.code is ErrorCode.GROUP_ID_NOT_FOUND
        classic.leave(driver)
    settle(driver, modern, classic)
    assert (len(modern.owned), len(classic.owned)) == (1, 1)
    modern.leave(driver)
    (listed,) = driver.listed()  # type: ignore[misc]
    assert (listed.type is GroupType.CLASSIC) == policy.downgrades
    settle(driver, classic)
    assert len(classic.owned) == 2


def test_other_assignors_are_voted_for(driver: GroupDriver) -> None:
    members = [ConsumerClient(name, ("a",), assignor="range") for name in "mn"]
    settle(driver, *members)
    assert described(driver).assignor == "range"
    settle(driver, *(ConsumerClient(name, ("a",), assignor="uniform") for name in "opq"))
    assert described(driver).assignor == "uniform"


def test_a_static_member_changes_its_protocol_in_its_place(driver: GroupDriver) -> None:
    modern = ConsumerClient("m", ("a",), instance="i")
    classic, other = ClassicClient("c", ("a",), instance="i"), ClassicClient("o", ("a",))
    settle(driver, modern, other)
    assert (len(modern.owned), len(other.owned)) == (1, 1)
    modern.die()  # without a word: its place is taken over at once
    settle(driver, classic, other)
    (listed,) = driver.listed()  # type: ignore[misc]
    assert (listed.type, len(classic.owned), len(other.owned)) == (GroupType.CLASSIC, 1, 1)
    classic.die()
    settle(driver, modern, other)
    (listed,) = driver.listed()  # type: ignore[misc]
    assert (listed.type, len(modern.owned), len(other.owned)) == (GroupType.CONSUMER, 1, 1)


def test_members_are_removed_by_an_administrator_whatever_their_protocol(driver: GroupDriver) -> None:
    """By LeaveGroup, as Admin.removeMembersFromConsumerGroup does it."""
    modern, other = ConsumerClient("m", ("a",)), ConsumerClient("o", ("a",))
    classic = ClassicClient("c", ("a",), instance="i")
    settle(driver, modern, classic, other)
    named = (MemberIdentity("", "i"), MemberIdentity("o1"), MemberIdentity("m1", "i"), MemberIdentity("x"))
    reply = driver.answer("leave", LeaveGroup(GROUP, named))
    assert isinstance(reply, LeaveReply)
    errors = [error.name for _, error in reply.members]
    assert errors == ["NONE", "NONE", "FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID"]
    refused = other.beat(driver)
    assert refused is not None
    assert refused.code is ErrorCode.UNKNOWN_MEMBER_ID
    settle(driver, modern)
    assert len(modern.owned) == 2


def test_what_is_to_be_given_up_next_is_asked_for_in_the_next_epoch(driver: GroupDriver) -> None:
    """As in Kafka: each epoch of a member has one revocation."""
    first = ConsumerClient("m", ("a",))
    settle(driver, first)
    assert (first.epoch, len(first.owned)) == (1, 2)
    ConsumerClient("n", ("a",)).beat(driver)
    first.beat(driver)  # told to give one up, which it does
    assert (first.epoch, len(first.owned)) == (1, 1)
    first.resubscribe("b")
    first.beat(driver)  # and the other one
    assert (first.epoch, first.owned) == (2, set())
    first.beat(driver)
    assert first.epoch == 3
