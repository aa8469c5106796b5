"""When committed metadata is put into action, and when no longer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kraft.publisher import Publisher
from metadata_quorum.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from metadata_quorum.records import RegisterBrokerRecord

NODE_ID = 1


class _Broker:
    """What a publisher acts on; notes the offsets it was told of."""

    def __init__(self) -> None:
        self.epoch = -1
        self.offsets: list[int] = []
        changes = SimpleNamespace(leading=(), following=(), removed=())

        def apply(delta: MetadataDelta, image: MetadataImage) -> object:
            self.offsets.append(image.offset)
            return changes

        partitions: Any = SimpleNamespace(apply=apply, drop_strays=lambda image: None)
        unused: Any = SimpleNamespace(take=lambda delta, image: None)
        node: Any = SimpleNamespace(node_id=NODE_ID, image=EMPTY_IMAGE)
        self.publisher = Publisher(
            node,
            partitions,
            unused,
            unused,
            unused,
            broker_epoch=lambda: self.epoch,
            on_published=lambda: None,
        )
        self.image = EMPTY_IMAGE

    def commit(self, broker_epoch: int) -> None:
        delta = MetadataDelta(self.image)
        delta.replay(
            RegisterBrokerRecord(
                broker_id=NODE_ID, incarnation_id=UUID(int=broker_epoch), broker_epoch=broker_epoch
            )
        )
        delta.offset = self.image.offset + 1
        self.image = delta.apply()
        self.publisher.publish(delta, self.image)


def test_nothing_happens_before_our_own_registration():
    broker = _Broker()
    broker.commit(5)  # of an earlier incarnation
    assert broker.offsets == []
    broker.commit(7)
    broker.epoch = 7
    broker.publisher.begin()
    assert broker.offsets == [1]


def test_a_closed_publisher_puts_nothing_into_action():
    """Its partitions are closed: a fetcher that began now would write into them."""
    broker = _Broker()
    broker.epoch = 5
    broker.commit(5)
    broker.publisher.close()
    broker.commit(5)
    assert broker.offsets == [0]
