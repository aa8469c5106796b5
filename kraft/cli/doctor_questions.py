"""What `kraft doctor` asks beyond survey.py; doctor.py judges the answers.

fenced            registered brokers that the controller does not hear:    DescribeCluster
log_dirs          of each broker:                                          DescribeLogDirs
under_min_isr     partitions that refuse acks=all:                         DescribeConfigs of their topics
open_for_long     transactions, by coordinator:                            ListTransactions
hanging           transactions that no coordinator knows:                  ListOffsets, DescribeProducers
certificates      of each broker's listener, until when:                   a TLS handshake
clocks            of each broker, against ours:                            the Date that its HTTP port tells
groups            state, members, lag:                                     kraft/cli/group_view.py
"""

from __future__ import annotations

import http.client
import socket
import ssl
import sys
import time
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Final, NamedTuple

from kraft.cli.bootstrap import Address
from kraft.cli.errors import CliError
from kraft.cli.group_view import by_leader, committed, group_at, lags, offsets_at
from kraft.cli.open_transactions import active_producers, unfinished_of
from kraft.cli.survey import TIMEOUT_S
from kraft.cli.wire_client import NotAnswered, at_coordinator, metadata, of_each_broker, request
from kraft.peers.blocking_client import SECURITY
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from kraft.wire.coordinator_type import CoordinatorType
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ResourceType, TopicPartition
from metadata_quorum.foundation.offset_timestamps import LATEST_TIMESTAMP

GROUPS: Final = 20
"""At most this many of a coordinator's groups are looked at: each costs three requests."""
UNSTABLE: Final = 100
"""At most this many partitions with an open transaction are looked at."""
STABLE: Final = "Stable"
FIRST_ANSWER_S: Final = 5.0
"""A node makes its HTTP server only for the first request."""
MIN_ISR: Final = "min.insync.replicas"
HTTP_PORT: Final = "kraft.http.port"


class GroupHealth(NamedTuple):
    group_id: str
    state: str
    members: int
    lag: int
    """Records, in all its partitions."""
    behind: Mapping[TopicPartition, int] = {}
    """What it has committed where it is behind."""


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
    """What each broker says of its log directories, without their partitions. Raises `CliError`."""
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
            tls.context.wrap_socket(plain, server_hostname=host) as secured,
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
                connection.connect()
                connection.sock.settimeout(FIRST_ANSWER_S)
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
                left = lags(bootstrap, offsets, ends)
                lag = sum(records for records, _ in left.values())
                behind = {place: offsets[place] for place, (records, _) in left.items() if records}
                found.append(GroupHealth(listed.group_id, group.state, len(group.members), lag, behind))
    return found


def stuck(bootstrap: str, found: Sequence[GroupHealth], watch_s: float) -> list[str]:
    """Groups with members that are behind and commit nothing for that long, with the first partition. Returns
    at once where none is behind. Raises `CliError`, `BrokerError`."""
    behind = [each for each in found if each.members and each.behind and each.state == STABLE]
    if not behind or not watch_s:
        return []
    print(f"groups are behind: looking again in {watch_s:g} s whether they move", file=sys.stderr)
    time.sleep(watch_s)
    stopped = []
    for each in behind:
        now = at_coordinator(
            bootstrap, each.group_id, CoordinatorType.GROUP, partial(committed, group_id=each.group_id)
        )
        still = [place for place, offset in each.behind.items() if now.get(place) == offset]
        stopped += [f"{each.group_id} (at {each.behind[still[0]]} of {still[0]})"] if still else []
    return stopped


class Hanging(NamedTuple):
    """A transaction that no coordinator knows, on one partition."""

    place: TopicPartition
    producer_id: int
    start_offset: int

    def __str__(self) -> str:
        return f"producer {self.producer_id} on {self.place} from offset {self.start_offset}"


def hanging(bootstrap: str, known: Message, silent: Set[Address], quiet_s: float) -> list[Hanging]:
    """Transactions that hold back readers of committed records, nothing of which was written for so long, and
    that no coordinator knows. Raises `CliError`, `BrokerError`."""
    everywhere = [TopicPartition(t.name, p.partition_index) for t in known.topics for p in t.partitions]
    led = {
        place for places in by_leader(bootstrap, everywhere, leave_out=silent).values() for place in places
    }
    ends = offsets_at(bootstrap, led, LATEST_TIMESTAMP)
    stable = offsets_at(bootstrap, led, LATEST_TIMESTAMP, committed_only=True)
    held_back = sorted(place for place, end in ends.items() if stable.get(place, end) < end)[:UNSTABLE]
    unfinished = _unfinished(bootstrap, held_back, quiet_s) if held_back else {}
    if not unfinished:
        return []
    answers = unfinished_of(bootstrap, (producer_id for _, producer_id in unfinished), leave_out=silent)
    if silent or answers.silent:
        raise CliError("a broker is silent that may coordinate what is open")
    coordinated = {each.producer_id for a in answers.by_id.values() for each in a.transaction_states}
    # It may have ended between the two questions.
    left = {place for place, producer_id in unfinished if producer_id not in coordinated}
    again = _unfinished(bootstrap, sorted(left), quiet_s) if left else {}
    return [
        Hanging(place, producer_id, offset)
        for (place, producer_id), offset in again.items()
        if producer_id not in coordinated
    ]


def _unfinished(
    bootstrap: str, partitions: Sequence[TopicPartition], quiet_s: float
) -> dict[tuple[TopicPartition, int], int]:
    """First offsets of transactions that have been silent for long, by partition and producer id."""
    newest_ms = (time.time() - quiet_s) * 1000
    found = {}
    for leader, places in by_leader(bootstrap, partitions).items():
        for place, each in active_producers(leader, places):
            if each.current_txn_start_offset >= 0 and each.last_timestamp < newest_ms:
                found[place, int(each.producer_id)] = int(each.current_txn_start_offset)
    return found
