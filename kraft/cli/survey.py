"""What a cluster's nodes say of it, each for itself, within a second or so: also where some are silent.

    brokers      those of --bootstrap-server, and those that these name:  Metadata
    quorum       through any broker, which asks the active controller:    DescribeQuorum
    controllers  where that came to nothing, each voter for itself:       DescribeQuorum; a voter that does
                 not lead says whom it takes for the leader. A broker's controller.quorum.voters has them

The requests of a step go out together, each with `TIMEOUT_S`; whoever is silent is named, with why.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kraft.cli.bootstrap import addresses
from kraft.cli.silence import silence_of
from kraft.net.client import Address
from kraft.peers.blocking_client import (
    METADATA_VERSION,
    QUORUM_FIELDS,
    QUORUM_VERSIONS,
    Query,
    ask_each,
)
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from kraft.wire.malformed import MalformedMessage, only
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ResourceType, TopicPartition

TIMEOUT_S: Final = 0.7
PAUSE_S: Final = 0.1
_FORBIDDEN: Final = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED,)
_VOTERS: Final = "controller.quorum.voters"


@dataclass(frozen=True, slots=True)
class ControllerView:
    """A voter of the metadata quorum, as it sees it itself."""

    node_id: int
    address: Address
    silence: str = ""
    """Why it says nothing; empty where it answers."""
    leader_id: int = -1
    """Whom it takes for the leader."""
    epoch: int = -1

    def __str__(self) -> str:
        if self.silence:
            return self.silence
        if self.leader_id == self.node_id:
            return f"leads in epoch {self.epoch}"
        leader = f"node {self.leader_id} leads" if self.leader_id >= 0 else "nobody leads"
        return f"says that {leader} in epoch {self.epoch}"


@dataclass(slots=True)
class Survey:
    """Made by `survey`."""

    metadata: dict[Address, Message] = field(default_factory=dict)
    """The Metadata response of each broker that answers."""
    silent: dict[Address, str] = field(default_factory=dict)
    """Why each of the others does not."""
    cut_off: list[Address] = field(default_factory=list)
    """Brokers that answer, but not what only the active controller can: they do not reach it."""
    quorum: Message | None = None
    """The metadata partition, as its leader describes it."""
    quorum_is_hidden: bool = False
    """We may not ask about it (DESCRIBE on the cluster): there may well be one."""
    controllers: list[ControllerView] = field(default_factory=list)
    """Filled only if the leader did not answer."""

    @property
    def witness(self) -> tuple[Address, Message] | None:
        """The first broker that answers, and its metadata."""
        return next(iter(self.metadata.items()), None)

    def brokers(self) -> list[Address]:
        """Those that answer, each by one address: as the cluster knows it, whatever we were told to ask."""
        known = {
            Address(each.host, each.port) for answer in self.metadata.values() for each in answer.brokers
        }
        return [each for each in self.metadata if each in known]

    def name_of(self, address: Address) -> str:
        """The broker at an address, with its id if any node knows it."""
        for answer in self.metadata.values():
            for broker in answer.brokers:
                if (broker.host, broker.port) == (address.host, address.port):
                    return f"broker {broker.node_id} ({address})"
        return str(address)

    def without_leader(self) -> Iterator[TopicPartition]:
        """Partitions that have no leader, or one that does not answer; users' topics first."""
        if self.witness is None:
            return
        _, known = self.witness
        silent = {(address.host, address.port) for address in self.silent}
        answering = {each.node_id for each in known.brokers if (each.host, each.port) not in silent}
        for topic in sorted(known.topics, key=lambda topic: (topic.is_internal, str(topic.name))):
            for each in topic.partitions:
                if each.leader_id not in answering:
                    yield TopicPartition(topic.name, int(each.partition_index))


def survey(bootstrap: str) -> Survey:
    """Raises CliError where the addresses are none."""
    found = Survey()
    named = [Address(*each) for each in addresses(bootstrap)]
    _ask_brokers(found, named)
    _ask_brokers(found, [each for each in _named_by(found) if each not in named])
    if found.quorum is None and found.witness is not None and not found.quorum_is_hidden:
        voters = _voters(*found.witness)
        queries = [Query(at, ApiKey.DESCRIBE_QUORUM, QUORUM_VERSIONS, QUORUM_FIELDS) for _, at in voters]
        answers = ask_each(queries, TIMEOUT_S)
        found.controllers = [_view(*voter, answer) for voter, answer in zip(voters, answers, strict=True)]
    return found


def reach_the_controller(bootstrap: str, timeout_s: float) -> bool:
    """Whether within that time every node that is up answers for the active controller. Raises CliError for
    invalid addresses."""
    named = [Address(*each) for each in addresses(bootstrap)]
    queries = [Query(each, ApiKey.DESCRIBE_QUORUM, QUORUM_VERSIONS, QUORUM_FIELDS) for each in named]
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:  # an election takes less
        if all(_comes_from_the_controller(each) for each in ask_each(queries, left)):
            return True
        time.sleep(PAUSE_S)
    return False


def _comes_from_the_controller(answer: Message | Exception) -> bool:
    """Also true for a broker that is down or refuses us: nothing that it knows is shown."""
    if isinstance(answer, Exception):
        return not isinstance(answer, TimeoutError)
    return answer.error_code in _FORBIDDEN or _described(answer) is not None


def _ask_brokers(found: Survey, brokers: Sequence[Address]) -> None:
    every_topic = {"topics": None, "allow_auto_topic_creation": False}
    versions = (METADATA_VERSION, METADATA_VERSION)
    queries = [Query(each, ApiKey.METADATA, versions, every_topic) for each in brokers]
    if found.quorum is None:
        queries += [Query(each, ApiKey.DESCRIBE_QUORUM, QUORUM_VERSIONS, QUORUM_FIELDS) for each in brokers]
    for query, answer in zip(queries, ask_each(queries, TIMEOUT_S), strict=True):
        if query.api_key is ApiKey.DESCRIBE_QUORUM:
            if not isinstance(answer, Exception) and (partition := _described(answer)) is not None:
                found.quorum = partition
            elif not isinstance(answer, Exception) and answer.error_code in _FORBIDDEN:
                found.quorum_is_hidden = True
            elif query.address in found.metadata:
                found.cut_off.append(query.address)
        elif isinstance(answer, Exception):
            found.silent[query.address] = silence_of(answer)
        else:
            found.metadata[query.address] = answer


def _named_by(found: Survey) -> list[Address]:
    return list(
        {
            Address(broker.host, broker.port): None
            for answer in found.metadata.values()
            for broker in answer.brokers
        }
    )


def _described(answer: Message) -> Message | None:
    """The metadata partition, where the leader has described it."""
    if answer.error_code != ErrorCode.NONE:
        return None
    try:
        partition: Message = only(only(answer.topics).partitions)
    except MalformedMessage:
        return None
    return partition if partition.error_code == ErrorCode.NONE else None


def _voters(broker: Address, known: Message) -> list[tuple[int, Address]]:
    """Ids and addresses, as the broker's configuration has them."""
    ids = [each.node_id for each in known.brokers if (each.host, each.port) == (broker.host, broker.port)]
    resource = {
        "resource_type": int(ResourceType.BROKER),
        "resource_name": str(ids[0]) if ids else "",
        "configuration_keys": [_VOTERS],
    }
    (answer,) = ask_each(
        [Query(broker, ApiKey.DESCRIBE_CONFIGS, (1, 4), {"resources": [resource]})], TIMEOUT_S
    )
    if isinstance(answer, Exception):
        return []
    values = [each.value for result in answer.results for each in result.configs if each.name == _VOTERS]
    voters = []
    for voter in (values[0] or "").split(",") if values else ():
        node_id, _, place = voter.partition("@")
        host, _, port = place.rpartition(":")
        if node_id.isdecimal() and port.isdecimal():
            voters.append((int(node_id), Address(host.strip("[]"), int(port))))
    return voters


def _view(node_id: int, address: Address, answer: Message | Exception) -> ControllerView:
    if isinstance(answer, Exception):
        return ControllerView(node_id, address, silence_of(answer))
    if answer.error_code != ErrorCode.NONE:
        return ControllerView(node_id, address, f"answers {ErrorCode(answer.error_code).name}")
    try:
        partition = only(only(answer.topics).partitions)
    except MalformedMessage as error:
        return ControllerView(node_id, address, silence_of(error))
    return ControllerView(node_id, address, "", int(partition.leader_id), int(partition.leader_epoch))
