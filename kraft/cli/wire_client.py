"""Our own client for commands, for requests that librdkafka has no calls for.

A request is sent to a broker's address; that of a group or a transactional id is its coordinator's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kraft.cli.bootstrap import TIMEOUT_S, Address, any_broker
from kraft.cli.confluent_client import PATIENCE_S
from kraft.cli.errors import CliError
from kraft.cli.silence import silence_of
from kraft.wire.api_keys import ApiKey
from kraft.wire.coordinator_type import CoordinatorType
from kraft.wire.malformed import only
from kraft.wire.software import API_VERSIONS_FIELDS
from metadata_quorum.foundation.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from kraft.wire.bridge import Message

Result = TypeVar("Result")


PAUSE_S: Final = 0.1
_COMING: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
"""What a coordinator says that may still be able to answer: it loads its log, or waits for its followers."""
_MOVING: Final = (*_COMING, ErrorCode.NOT_COORDINATOR)


class NotAnswered(CliError):
    """The node does not have that API."""


def request(
    address: Address, api_key: ApiKey, versions: tuple[int, int], fields: Mapping[str, Any]
) -> Message:
    """One request. Raises CliError where the broker does not answer, `NotAnswered` where it never does."""
    # The codec takes a while to import, and `kraft --help` must not wait for it.
    from kraft.net.client import UnsupportedVersion
    from kraft.peers.blocking_client import ask
    from kraft.wire.bridge import MalformedMessage

    try:
        return ask(*address, api_key, versions, fields)
    except TimeoutError:
        raise CliError(f"{address[0]}:{address[1]}: no answer in time") from None
    except UnsupportedVersion as error:
        raise NotAnswered(f"{address[0]}:{address[1]} {silence_of(error)}") from None
    except (OSError, MalformedMessage) as error:
        raise CliError(f"{address[0]}:{address[1]} {silence_of(error)}") from None


def api_versions(address: Address, versions: tuple[int, int]) -> Message:
    """Which APIs the node answers, and which features it has, in those versions of ApiVersions."""
    answer = request(address, ApiKey.API_VERSIONS, versions, API_VERSIONS_FIELDS)
    raise_for(answer.error_code, f"{address[0]}:{address[1]}")
    return answer


def metadata(bootstrap: str, topics: list[str] | None) -> Message:
    """Brokers, and topics with their leaders: those that are named, or all for None."""
    named = None if topics is None else [{"name": name} for name in topics]
    fields = {"topics": named, "allow_auto_topic_creation": False}
    return request(any_broker(bootstrap), ApiKey.METADATA, (9, 12), fields)


def broker_address(bootstrap: str, broker: str) -> Address:
    """A broker by its id. Raises CliError if no such broker is up."""
    brokers = {each.node_id: (each.host, each.port) for each in metadata(bootstrap, []).brokers}
    for broker_id, address in brokers.items():
        if str(broker_id) == broker:
            return address
    up = ", ".join(map(str, sorted(brokers)))
    raise CliError(f"{broker}: no such broker is up; those that are up are {up}")


def topics(bootstrap: str, names: list[str] | None) -> list[Message]:
    """As Metadata has them, by name: those that are named, or all for None. Raises CliError where one of them
    does not exist, `BrokerError` where it is refused."""
    found = sorted(metadata(bootstrap, names).topics, key=lambda topic: str(topic.name))
    for topic in found:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise CliError(f"{topic.name}: there is no such topic")
        raise_for(topic.error_code, topic.name)
    return found


def find_topic(bootstrap: str, name: str) -> Message | None:
    """None where there is none of that name. Raises `BrokerError` where it is refused."""
    topic: Message = only(metadata(bootstrap, [name]).topics)
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    raise_for(topic.error_code, name)
    return topic


def require_topic(bootstrap: str, name: str) -> int:
    """A topic's number of partitions. Raises CliError where there is no such topic, `BrokerError` where it is
    refused."""
    return len(only(topics(bootstrap, [name])).partitions)


class BrokerAnswers(NamedTuple):
    """The answers of all brokers that are up, to a question that each can answer only in part."""

    by_id: dict[int, Message]
    silent: list[str]
    """The brokers that did not answer, and why."""

    def require_all(self) -> None:
        """After what there is has been shown. Raises CliError where a part is missing."""
        if self.silent:
            raise CliError(f"not all is known: {', '.join(self.silent)}")


def of_each_broker(
    bootstrap: str,
    api_key: ApiKey,
    versions: tuple[int, int],
    fields: Mapping[str, Any],
    *,
    leave_out: Container[Address] = (),
) -> BrokerAnswers:
    """All are asked at the same time; not those that are known to be silent."""
    from kraft.net.client import Address as NodeAddress
    from kraft.peers.blocking_client import Query, ask_each

    brokers = [each for each in metadata(bootstrap, []).brokers if (each.host, each.port) not in leave_out]
    queries = [Query(NodeAddress(each.host, each.port), api_key, versions, fields) for each in brokers]
    found = BrokerAnswers({}, [])
    for broker, answer in zip(brokers, ask_each(queries, TIMEOUT_S), strict=True):
        name = f"broker {broker.node_id} ({broker.host}:{broker.port})"
        if isinstance(answer, Exception):
            found.silent.append(f"{name} {silence_of(answer)}")
        elif answer.error_code in _COMING:
            found.silent.append(f"{name} answers {ErrorCode(answer.error_code).name}")
        else:
            raise_for(answer.error_code, f"broker {broker.node_id}")
            found.by_id[broker.node_id] = answer
    return found


def at_coordinator(
    bootstrap: str, name: str, key_type: CoordinatorType, work: Callable[[Address], Result]
) -> Result:
    """Do `work` at the coordinator of the group or the transactional id; retry where that broker is not yet,
    or no longer, its coordinator: then it has done nothing."""
    for _ in attempts(f"{name}: its coordinator was not found in time"):
        address = _coordinator(bootstrap, name, key_type)
        try:
            return work(address)
        except BrokerError as error:
            if error.code not in _MOVING:
                raise
    raise AssertionError("attempts end by an error of their own")


def _coordinator(bootstrap: str, name: str, key_type: CoordinatorType) -> Address:
    fields = {"key": name, "key_type": int(key_type)}
    for _ in attempts(f"{name}: its coordinator was not found in time"):
        coordinator = request(any_broker(bootstrap), ApiKey.FIND_COORDINATOR, (1, 3), fields)
        if coordinator.error_code not in _COMING:
            break
    raise_for(coordinator.error_code, name)
    return coordinator.host, coordinator.port


def attempts(in_vain: str) -> Iterator[None]:
    """Retry as long as it is iterated. Raises CliError (`in_vain`) after PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        yield
        time.sleep(PAUSE_S)
    raise CliError(in_vain)


def raise_for(code: int, context: str) -> None:
    """Raises BrokerError where an answer holds an error."""
    if code != ErrorCode.NONE:
        raise BrokerError(ErrorCode(code), context)
