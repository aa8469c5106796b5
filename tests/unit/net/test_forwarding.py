"""Requests in envelopes, on real sockets: broker to controller and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.api.envelope import decode_address, decode_principal, encode_principal
from kraft.api.request_context import Role
from kraft.api.row import ApiRow
from kraft.api.table import ROWS
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.unit.net.forwarded import Controller, ToController
from tests.unit.net.harness import on_a_loop, serving


@given(st.text(max_size=20).filter(lambda kind: ":" not in kind), st.text(max_size=200))
def test_principals(kind: str, name: str) -> None:
    assert decode_principal(encode_principal(f"{kind}:{name}")) == f"{kind}:{name}"


@pytest.mark.parametrize("data", [b"", b"\x00\x01", b"\x00\x00\x05ab", b"\x00\x00\x02\xff\x02a\x00\x00"])
def test_what_is_no_principal_is_refused(data: bytes) -> None:
    with pytest.raises(BrokerError):
        decode_principal(data)


def test_what_is_no_address_is_refused() -> None:
    assert decode_address(bytes((127, 0, 0, 1))) == "127.0.0.1"
    with pytest.raises(BrokerError):
        decode_address(b"abc")


def rows_with(handler) -> dict[int, ApiRow]:
    row = ROWS[ApiKey.DELETE_TOPICS]
    made = ApiRow(
        row.key,
        (row.min_version, row.max_version),
        (),
        forwarded=handler,
        on_error=row.on_error,
    )
    return {**ROWS, ApiKey.DELETE_TOPICS: made}


@pytest.mark.parametrize("version", [1, 6])
def test_a_broker_hands_a_request_on_and_its_answer_back(version: int) -> None:
    seen = []

    async def delete(node, ctx, request):
        seen.append((ctx.principal, ctx.client_host, ctx.client_id))
        return {"responses": [{"name": "gone", "error_code": 0}]}

    @on_a_loop
    async def test():
        rows = rows_with(delete)
        active = Controller(is_active=True)
        async with (
            serving(rows, role=Role.CONTROLLER, controller=active) as controller,
            serving(rows) as broker,
        ):
            broker.node.controller_channel = ToController(controller)
            client = await broker.client()
            answer = await client.request(ApiKey.DELETE_TOPICS, version, {})
            assert [each.name for each in answer.responses] == ["gone"]
            client.close()
        assert seen == [("User:ANONYMOUS", "127.0.0.1", "test")]

    test()


@pytest.mark.parametrize("active", [True, False])
def test_a_controller_that_is_none_any_more_says_so_in_the_envelope(active: bool) -> None:
    """Whether it knew before or finds out in the handler: the broker, not its client, is to look on."""

    async def delete(node, ctx, request):
        raise BrokerError(ErrorCode.NOT_CONTROLLER)

    @on_a_loop
    async def test():
        rows = rows_with(delete)
        voter = Controller(is_active=active)
        async with (
            serving(rows, role=Role.CONTROLLER, controller=voter) as controller,
            serving(rows) as broker,
        ):
            broker.node.controller_channel = ToController(controller)
            client = await broker.client()
            fields = {"topics": [{"name": "one"}]}
            answer = await client.request(ApiKey.DELETE_TOPICS, 6, fields)
            assert [each.error_code for each in answer.responses] == [ErrorCode.NOT_CONTROLLER]
            client.close()

    test()
