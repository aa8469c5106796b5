"""What `kraft doctor` asks beyond survey.py; doctor.py judges the answers.

fenced            registered brokers that the controller does not hear:    DescribeCluster
log_dirs          of each broker:                                          DescribeLogDirs
under_min_isr     partitions that refuse acks=all:                         DescribeConfigs of their topics
open_for_long     transactions, by coordinator:                            ListTransactions
certificates      of each broker's listener, until when:                   a TLS handshake
clocks            of each broker, against ours:                            the Date that its HTTP port tells
groups            state, members, lag:                                     kraft/cli/group_view.py
"""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

from kraft.cli.bootstrap import Address
from kraft.cli.group_view import committed, group_at, lags, offsets_at
from kraft.cli.survey import TIMEOUT_S
from kraft.cli.wire_client import NotAnswered, metadata, of_each_broker, request
from kraft.peers.blocking_client import SECURITY
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ResourceType, TopicPartition
from metadata_quorum.foundation.offset_timestamps import LATEST_TIMESTAMP

GROUPS: Final = 20
"""Of a coordinator at most so many are looked at: each costs three requests."""
MIN_ISR: Final = "min.insync.replicas"
HTTP_PORT: Final = "kraft.http.port"


class GroupHealth(NamedTuple):
    group_id: str
    state: str
    members: int
    lag: int
    """Records, in all its partitions."""


def fenced(bootstrap_address: Address) -> list[int]:
    """Registered, and not heard of: dead, or cut off. Raises `CliError`."""
    fields = {
        "include_cluster_authorized_operations": False,
        "endpoint_type": 1,
        "include_fenced_brokers": True,
    }
    try:
        answer = request(bootstrap_address, ApiKey.DESCRIBE_CLUSTER, (2, 2), fields)
    except NotAnswered:  # Apache Kafka before 4.0
        return []
    return sorted(each.broker_id for each in answer.brokers if each.is_fenced)


def log_dirs(bootstrap: str, silent: Container[Address]) -> dict[int, Sequence[Message]]:
    """Without partitions. Raises `CliError`."""
    answers = of_each_broker(bootstrap, ApiKey.DESCRIBE_LOG_DIRS, (4, 4), {"topics": []}, leave_out=silent)
    return {broker_id: answer.results for broker_id, answer in answers.by_id.items()}


def min_isr(broker: Address, topics: Sequence[str]) -> dict[str, int]:
    """min.insync.replicas of each; none of those that we may not ask about. Raises `CliError`."""
    if not topics:
        return {}
    resources = [
        {"resource_type": int(ResourceType.TOPIC), "resource_name": name, "configuration_keys": [MIN_ISR]}
        for name in topics
    ]
    answer = request(broker, ApiKey.DESCRIBE_CONFIGS, (1, 4), {"resources": resources})
    return {
        result.resource_name: int(config.value)
        for result in answer.results
        for config in result.configs
        if config.name == MIN_ISR
    }


def open_for_long(bootstrap: str, silent: Container[Address], longer_than_s: float) -> list[str]:
    """Transactional ids. Raises `CliError`."""
    fields = {
        "state_filters": ["Ongoing"],
        "producer_id_filters": [],
        "duration_filter": int(longer_than_s * 1000),
        "transactional_id_pattern": None,
    }
    answers = of_each_broker(bootstrap, ApiKey.LIST_TRANSACTIONS, (1, 2), fields, leave_out=silent)
    return sorted(each.transactional_id for a in answers.by_id.values() for each in a.transaction_states)


def certificates(brokers: Mapping[int, Address]) -> dict[int, float]:
    """Until when each broker's is valid, in seconds since 1970; none without TLS, none of those that are
    silent."""
    tls = SECURITY.get().tls
    if tls is None:
        return {}
    found = {}
    for broker_id, (host, port) in brokers.items():
        with (
            suppress(OSError),
            socket.create_connection((host, port), timeout=TIMEOUT_S) as plain,
            tls.wrap_socket(plain, server_hostname=host) as secured,
        ):
            found[broker_id] = float(ssl.cert_time_to_seconds(str((secured.getpeercert() or {})["notAfter"])))
    return found


def clocks(brokers: Mapping[int, Address]) -> dict[int, float]:
    """By how many seconds each broker's is ahead of ours; only of those with a kraft.http.port. A Date has
    whole seconds. Raises `CliError`."""
    found = {}
    for broker_id, address in brokers.items():
        for port in _http_port(broker_id, address):
            connection = http.client.HTTPConnection(address[0], port, timeout=TIMEOUT_S)
            with suppress(OSError, http.client.HTTPException, ValueError, TypeError):
                connection.request("GET", "/api")
                date = connection.getresponse().getheader("Date")
                found[broker_id] = parsedate_to_datetime(str(date)).timestamp() - time.time()
            connection.close()
    return found


def _http_port(broker_id: int, address: Address) -> Iterator[int]:
    resource = {
        "resource_type": int(ResourceType.BROKER),
        "resource_name": str(broker_id),
        "configuration_keys": [HTTP_PORT],
    }
    answer = request(address, ApiKey.DESCRIBE_CONFIGS, (1, 4), {"resources": [resource]})
    for result in answer.results:
        if result.error_code == ErrorCode.NONE:
            yield from (int(each.value) for each in result.configs if (each.value or "").isdecimal())


def groups(bootstrap: str, silent: Container[Address], leaderless: Set[TopicPartition]) -> list[GroupHealth]:
    """The first `GROUPS` of each coordinator that answers; the lag only of partitions with a leader. Raises
    `CliError`, `BrokerError`."""
    addresses = {each.node_id: (each.host, each.port) for each in metadata(bootstrap, []).brokers}
    answers = of_each_broker(bootstrap, ApiKey.LIST_GROUPS, (4, 5), {"states_filter": []}, leave_out=silent)
    found = []
    for broker_id, answer in answers.by_id.items():
        coordinator = addresses[broker_id]
        for listed in answer.groups[:GROUPS]:
            group = group_at(coordinator, listed.group_id)
            if group is not None:
                offsets = committed(coordinator, listed.group_id)
                ends = offsets_at(bootstrap, offsets.keys() - leaderless, LATEST_TIMESTAMP)
                lag = sum(records for records, _ in lags(bootstrap, offsets, ends).values())
                found.append(GroupHealth(listed.group_id, group.state, len(group.members), lag))
    return found
