"""Topics that are created because a client asked for them.

Metadata and, for the coordinators' topics, FindCoordinator start it. The creation runs in the background
through the controller, once at a time per topic and for a bounded number of topics. Like Kafka, Metadata
answers UNKNOWN_TOPIC_OR_PARTITION, and the client retries; FindCoordinator waits a little.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from data_plane.coordinator.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kraft.api.context import BrokerContext, NodeContext
from kraft.monitoring.rate_limited_log import rate_limited
from kraft.wire.api_keys import ApiKey
from metadata_quorum.decisions.topics import name_problem
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.supervision import supervised

log = rate_limited(logging.getLogger(__name__))

CREATE_TOPICS_VERSION: Final = 7
CREATE_TIMEOUT_MS: Final = 10_000
PATIENCE_S: Final = 3.0
LOOK_EVERY_S: Final = 0.02
MOST_AT_ONCE: Final = 100
"""Topics that are being created at the same time; further ones are created when the client asks again."""
LOOKS: Final = 50
"""How often to look whether this broker has read the new topic in the metadata, which takes a moment."""


def unknown_topic_error(name: str) -> ErrorCode:
    """What to say about a topic that does not exist."""
    if name_problem(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def request_creation(broker: BrokerContext, name: str) -> bool:
    """Have the topic created; False if its name is invalid, or too many are being created."""
    if len(broker.creating_topics) >= MOST_AT_ONCE or name_problem(name) is not None:
        return False
    _begin(broker, name)
    return True


def _begin(broker: BrokerContext, name: str) -> asyncio.Task[bool]:
    """Start the creation, unless it is already in progress."""
    if name not in broker.creating_topics:
        broker.creating_topics[name] = supervised(
            broker.node.loop, _create(broker, name), f"creation of {name}"
        )
    return broker.creating_topics[name]


async def creation(broker: BrokerContext, name: str) -> None:
    """Have it created, and wait a little until this broker knows it.

    A transactional producer of librdkafka asks three times for its group's coordinator, within a third of a
    second, and then no more until something else happens to it. Kafka does not wait for that.
    """
    done, _ = await asyncio.wait((_begin(broker, name),), timeout=PATIENCE_S)
    if not (done and done.pop().result()):
        return
    for _ in range(LOOKS):
        if broker.client_image.topic(name) is not None:
            return
        await asyncio.sleep(LOOK_EVERY_S)


async def _create(broker: BrokerContext, name: str) -> bool:
    """Whether there is such a topic now."""
    request = {"topics": [_wanted(broker.node, name)], "timeout_ms": CREATE_TIMEOUT_MS}
    try:
        response = await broker.node.controller_channel.request(
            ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, request
        )
        for topic in response.topics:
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                code = ErrorCode(topic.error_code).name
                log.warning(
                    "topic %s was not created on demand: %s %s", name, code, topic.error_message or ""
                )
                return False
        return True
    except (BrokerError, OSError) as error:
        log.warning("topic %s was not created on demand: %s", name, error)
        return False
    finally:
        broker.creating_topics.pop(name, None)


def _wanted(node: NodeContext, name: str) -> dict[str, Any]:
    config = node.config
    if name == OFFSETS_TOPIC:
        return {
            "name": name,
            "num_partitions": config.offsets_topic_num_partitions,
            "replication_factor": config.offsets_topic_replication_factor,
            "configs": [
                {"name": "cleanup.policy", "value": "compact"},
                {"name": "compression.type", "value": "producer"},
                {"name": "segment.bytes", "value": str(config.offsets_topic_segment_bytes)},
            ],
        }
    if name == TRANSACTIONS_TOPIC:
        return {
            "name": name,
            "num_partitions": config.transaction_state_log_num_partitions,
            "replication_factor": config.transaction_state_log_replication_factor,
            "configs": [
                {"name": "cleanup.policy", "value": "compact"},
                {"name": "compression.type", "value": "uncompressed"},
                {"name": "unclean.leader.election.enable", "value": "false"},
                {"name": "min.insync.replicas", "value": str(config.transaction_state_log_min_isr)},
                {"name": "segment.bytes", "value": str(config.transaction_state_log_segment_bytes)},
            ],
        }
    return {  # the values of this broker: the controllers need not have the same
        "name": name,
        "num_partitions": config.num_partitions,
        "replication_factor": config.default_replication_factor,
    }
