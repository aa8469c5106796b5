"""What the metadata says becomes events, with the rule behind each."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from kraft.monitoring.cluster_events import PARTITIONS_NAMED, ClusterEvents, EventKind
from metadata_quorum.foundation.model import PartitionRegistration
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage, TopicImage
from tests.unit.monitoring.images import ALL_IN_SYNC, TOPIC, image


def happened(*images: MetadataImage) -> list[tuple[EventKind, str, str]]:
    events, before = ClusterEvents(), EMPTY_IMAGE
    for each in images:
        events.take(MetadataDelta.between(before, each), each)
        before = each
    return [(event.kind, event.subject, event.text) for event in events.since(0)]


def test_what_was_there_at_the_start_is_no_event() -> None:
    assert happened(image()) == []


def test_a_follower_that_is_behind_leaves_and_returns() -> None:
    behind = replace(ALL_IN_SYNC, isr=(1, 2), partition_epoch=1)
    (left, joined) = happened(image(), image(behind), image(replace(ALL_IN_SYNC, partition_epoch=2)))
    assert left[:2] == (EventKind.ISR_SHRINK, "t-0")
    assert "3 left" in left[2]
    assert "replica.lag.time.max.ms" in left[2]
    assert joined[:2] == (EventKind.ISR_EXPAND, "t-0")


def test_a_fence_explains_the_election_and_the_shrink() -> None:
    elected = replace(ALL_IN_SYNC, isr=(2, 3), leader=2, leader_epoch=1, partition_epoch=1)
    fence, election, shrink = happened(image(), image(elected, fenced=(1,)))
    assert fence[:2] == (EventKind.BROKER_FENCED, "broker 1")
    assert election[0] is EventKind.ELECTION
    assert "1 → 2" in election[2]
    assert "broker 1 is fenced" in election[2]
    assert "fenced or shutting down" in shrink[2]


def test_an_election_is_clean_from_the_isr_and_from_the_elr() -> None:
    nobody = replace(ALL_IN_SYNC, isr=(), elr=(3,), leader=-1, leader_epoch=1, partition_epoch=1)
    elected = replace(nobody, isr=(3,), elr=(), leader=3, leader_epoch=2, partition_epoch=2)
    texts = {kind: text for kind, _, text in happened(image(), image(nobody), image(elected))}
    assert texts[EventKind.ELECTION].endswith("alive again, 3 was in the ELR")
    assert texts[EventKind.ISR_EXPAND] == "3 joined, ISR [3]: elected from the ELR"
    assert EventKind.UNCLEAN_ELECTION not in texts


def test_who_was_reassigned_did_not_lag() -> None:
    moved = replace(ALL_IN_SYNC, replicas=(1, 2), isr=(1, 2), partition_epoch=1)
    ((_, _, text),) = happened(image(), image(moved))
    assert text == "3 left, ISR [1, 2]: no replicas any more, they were reassigned"


def test_of_very_many_changes_those_of_users_are_named() -> None:
    def both(partition: PartitionRegistration) -> MetadataImage:
        own, users = image(partition), UUID(int=9)
        many = TopicImage("__own", TOPIC, dict.fromkeys(range(PARTITIONS_NAMED), partition))
        return replace(own, topics_by_id={TOPIC: many, users: TopicImage("t", users, {0: partition})})

    changes = happened(both(ALL_IN_SYNC), both(replace(ALL_IN_SYNC, isr=(1, 2), partition_epoch=1)))
    assert [subject for _, subject, _ in changes[:2]] == ["t-0", "__own-0"]
    assert changes[-1] == (EventKind.MORE, "partitions", "1 more changed with these")


def test_an_unclean_election_is_called_so_and_counted() -> None:
    nobody = replace(ALL_IN_SYNC, isr=(1,), leader=-1, leader_epoch=1, partition_epoch=1)
    unclean = replace(nobody, isr=(3,), leader=3, leader_epoch=2, partition_epoch=2)
    events, before = ClusterEvents(), EMPTY_IMAGE
    for each in (image(), image(nobody), image(unclean)):
        events.take(MetadataDelta.between(before, each), each)
        before = each
    assert events.unclean_elections == 1
    kinds = [event.kind for event in events.since(0)]
    assert EventKind.OFFLINE in kinds
    assert EventKind.UNCLEAN_ELECTION in kinds


def test_topics_come_and_go() -> None:
    kinds = [(kind, subject) for kind, subject, _ in happened(image(None), image(), image(None))]
    assert kinds == [(EventKind.TOPIC_CREATED, "t"), (EventKind.TOPIC_DELETED, "t")]


def test_listeners_are_called_once_per_change() -> None:
    events, counts = ClusterEvents(), []
    events.listeners[lambda: counts.append(len(events.since(0)))] = None
    first, second = image(None), image()
    events.take(MetadataDelta.between(EMPTY_IMAGE, first), first)
    events.take(MetadataDelta.between(first, second), second)
    assert counts == [1]
