"""Commands whose coordinator has just moved, or does not yet know that it is one."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from kraft.cli import wire_client
from kraft.cli.bootstrap import Address
from kraft.cli.wire_client import at_coordinator, find_topic, of_each_broker, require_topic
from kraft.peers import blocking_client
from kraft.wire.api_keys import ApiKey
from kraft.wire.coordinator_type import CoordinatorType
from kraft.wire.malformed import MalformedMessage
from metadata_quorum.foundation.errors import BrokerError, ErrorCode


@pytest.fixture
def two_coordinators(monkeypatch: pytest.MonkeyPatch) -> None:
    """FindCoordinator tells one broker, and another when it is asked again."""
    ports: Iterator[int] = iter((1, 2))
    monkeypatch.setattr(wire_client, "PAUSE_S", 0)
    monkeypatch.setattr(
        wire_client,
        "request",
        lambda *_: SimpleNamespace(error_code=int(ErrorCode.NONE), host="here", port=next(ports)),
    )


@pytest.mark.usefixtures("two_coordinators")
@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_who_is_no_coordinator_is_not_the_last_to_be_asked(code: ErrorCode) -> None:
    def work(address: Address) -> str:
        if address == ("here", 1):
            raise BrokerError(code)
        return "done"

    assert at_coordinator("here:9", "group", CoordinatorType.GROUP, work) == "done"


@pytest.mark.usefixtures("two_coordinators")
def test_any_other_refusal_is_the_answer() -> None:
    def work(address: Address) -> None:
        raise BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
        at_coordinator("here:9", "group", CoordinatorType.GROUP, work)


@pytest.mark.parametrize("count", [0, 2])
def test_an_answer_about_something_else_is_none(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    topics = [SimpleNamespace(error_code=0, name="t", partitions=[])] * count
    monkeypatch.setattr(wire_client, "metadata", lambda *_: SimpleNamespace(topics=topics))
    for ask in (find_topic, require_topic):
        with pytest.raises(MalformedMessage, match=f"about {count} things"):
            ask("here:9", "t")


def test_a_coordinator_that_cannot_answer_yet_is_missed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the others know is shown all the same."""
    brokers = [SimpleNamespace(node_id=number, host="here", port=number) for number in (1, 2)]
    answers = [
        SimpleNamespace(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE)),
        SimpleNamespace(error_code=int(ErrorCode.NONE)),
    ]
    monkeypatch.setattr(wire_client, "metadata", lambda *_: SimpleNamespace(brokers=brokers))
    monkeypatch.setattr(blocking_client, "ask_each", lambda *_: answers)
    found = of_each_broker("here:9", ApiKey.LIST_GROUPS, (4, 5), {})
    assert found.by_id == {2: answers[1]}
    assert found.silent == ["broker 1 (here:1) answers COORDINATOR_NOT_AVAILABLE"]
