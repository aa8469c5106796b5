"""A long body is decoded and authorized in another thread, by steps of its own: those of a short one."""

from __future__ import annotations

import threading
from typing import Any, Final, NamedTuple

import pytest

from kraft.api import dispatch
from kraft.api.request_context import Role
from kraft.api.row import ApiRow
from kraft.api.table import ROWS
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.security.acls import AclOperation
from tests.unit.net.forwarded import Controller, ToController
from tests.unit.net.harness import on_a_loop, serving

SHORT, LONG = 1, 300
"""Topics of a request; LONG ones take more than LONG_BODY_BYTES."""


class Case(NamedTuple):
    """What happens to the request."""

    code: ErrorCode
    steps: tuple[str, ...]
    to_broker: bool = True
    active: bool = True
    allowed: bool = True
    raises: ErrorCode | None = None


SERVED = ("decode", "authorize", "handle")
ENVELOPED = ("decode", "forward", "decode", "open", "authorize")

CASES: Final = {
    "served": Case(ErrorCode.NONE, SERVED, to_broker=False),
    "refused by the handler": Case(
        ErrorCode.POLICY_VIOLATION, SERVED, to_broker=False, raises=ErrorCode.POLICY_VIOLATION
    ),
    "not authorized": Case(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED, ("decode", "authorize"), to_broker=False, allowed=False
    ),
    "forwarded": Case(ErrorCode.NONE, ENVELOPED + SERVED),
    "not authorized in its envelope": Case(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED, (*ENVELOPED, "decode", "authorize"), allowed=False
    ),
    "forwarded to who is no controller": Case(ErrorCode.NOT_CONTROLLER, ENVELOPED, active=False),
}


class ClusterOnly:
    """An authorizer that allows envelopes, and what is in them perhaps."""

    def __init__(self, *, allowed: bool) -> None:
        self._allowed = allowed

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        return self._allowed or operation == AclOperation.CLUSTER_ACTION


@pytest.mark.parametrize("topics", [SHORT, LONG])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@on_a_loop
async def test_a_long_body_takes_the_steps_of_a_short_one(
    monkeypatch: pytest.MonkeyPatch, case: Case, topics: int
) -> None:
    loop_thread = threading.get_ident()
    steps: list[str] = []
    beside_the_loop: list[bool] = []

    def recorded(name: str, function: Any) -> None:
        def record(*args: Any, **more: Any) -> Any:
            steps.append(name)
            if name in ("decode", "open", "authorize"):
                beside_the_loop.append(threading.get_ident() != loop_thread)
            return function(*args, **more)

        monkeypatch.setattr(dispatch, function.__name__, record)

    recorded("decode", dispatch.decode_request)
    recorded("forward", dispatch.forward)
    recorded("open", dispatch.open_envelope)
    recorded("authorize", dispatch.authorize)

    async def handle(node: Any, ctx: Any, request: Any) -> Any:
        steps.append("handle")
        if case.raises is not None:
            raise BrokerError(case.raises)
        return {"results": [{"name": each.name, "error_code": 0} for each in request.topics]}

    row = ROWS[ApiKey.CREATE_PARTITIONS]
    made = ApiRow(
        ApiKey.CREATE_PARTITIONS, row.versions, row.authorization, forwarded=handle, on_error=row.on_error
    )
    rows = {**ROWS, ApiKey.CREATE_PARTITIONS: made}
    async with (
        serving(rows, role=Role.CONTROLLER, controller=Controller(is_active=case.active)) as controller,
        serving(rows) as broker,
    ):
        controller.node.authorizer = ClusterOnly(allowed=case.allowed)
        broker.node.controller_channel = ToController(controller)
        client = await (broker if case.to_broker else controller).client()
        named = [{"name": f"topic-{n}", "count": 2, "assignments": None} for n in range(topics)]
        fields = {"topics": named, "timeout_ms": 1000, "validate_only": False}
        answer = await client.request(ApiKey.CREATE_PARTITIONS, 3, fields)
        client.close()
    assert [each.error_code for each in answer.results] == [case.code] * topics
    assert tuple(steps) == case.steps
    assert set(beside_the_loop) == {topics == LONG}
