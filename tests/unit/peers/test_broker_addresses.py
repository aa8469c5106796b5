"""Where a node reaches another broker: where that one says, or where this node is configured to."""

from __future__ import annotations

from uuid import UUID

from kraft.config.node_config import Config
from kraft.net.client import Address
from kraft.peers.broker_addresses import BrokerAddresses
from metadata_quorum.foundation.model import BrokerRegistration, Endpoint, SecurityProtocol
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.metadata_cache import MetadataCache

NODE_1 = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:9193,2@127.0.0.1:9294,3@127.0.0.1:9295",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9193",
    "log.dirs": "/data",
}


def registered(broker_id: int) -> BrokerRegistration:
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9091 + broker_id, SecurityProtocol.PLAINTEXT)
    return BrokerRegistration(broker_id, 0, UUID(int=broker_id), (endpoint,))


def test_a_node_connects_where_its_configuration_says():
    config = Config.from_properties({**NODE_1, "kraft.peer.addresses": "2@127.0.0.1:7002,4@127.0.0.1:7004"})
    image = MetadataImage(brokers={i: registered(i) for i in (1, 2, 3)})
    addresses = BrokerAddresses(config, MetadataCache(image))
    assert addresses.find(2) == Address("127.0.0.1", 7002)
    assert addresses.find(3) == Address("127.0.0.1", 9094)
    assert addresses.find(4) is None, "it has not registered yet"
