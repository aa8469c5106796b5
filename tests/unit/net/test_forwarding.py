"""Requests in envelopes, on real sockets: broker to controller and back."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.api import topics
from kraft.api.envelope import decode_address, decode_principal, encode_principal
from kraft.api.request_context import Role
from kraft.api.row import ApiRow
from kraft.api.table import ROWS
from kraft.net.connection import ConnectionLimits
from kraft.net.listener import ServerLimits
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import decode_response, encode_request
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.unit.net.forwarded import Controller, ToController, ToNobody
from tests.unit.net.harness import on_a_loop, serving, until


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


@on_a_loop
async def test_what_does_not_fit_into_an_envelope_is_refused_by_the_broker() -> None:
    """The controller would end the connection that all which the broker asks of it goes through."""
    limits = ServerLimits(connection=ConnectionLimits(max_frame_bytes=100_000))

    async def delete(node, ctx, request):
        return {"responses": []}

    rows, active = rows_with(delete), Controller(is_active=True)
    async with (
        serving(rows, limits, Role.CONTROLLER, active) as controller,
        serving(rows, limits) as broker,
    ):
        broker.node.controller_channel = ToController(controller)
        client = await broker.client()
        codes = []
        for length in (99_000, 99_950):
            fields = {"topics": [{"name": "t"}]}
            body = encode_request(ApiKey.DELETE_TOPICS, 6, fields)
            answer = await client.send(ApiKey.DELETE_TOPICS, 6, (body + bytes(length - len(body)),))
            told = decode_response(ApiKey.DELETE_TOPICS, 6, answer)
            codes.append([each.error_code for each in told.responses])
        assert codes == [[], [ErrorCode.INVALID_REQUEST]]
        client.close()
    assert [broken for _, broken in controller.closed] == [True]  # by the broker, when it was answered


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


@pytest.mark.parametrize("names", [1, 5000], ids=["short", "long"])
def test_where_no_controller_answers_very_many_items_are_refused_beside_the_loop(names: int) -> None:
    """Sixty thousand of them took a quarter of a second."""
    threads = []

    def on_error(request, code, message):
        threads.append(threading.get_ident())
        return topics.delete_topics_error(request, code, message)

    class Refuses:
        async def request(self, *_):
            raise BrokerError(ErrorCode.REQUEST_TIMED_OUT)

    @on_a_loop
    async def test():
        rows = rows_with(lambda *_: None)
        rows[ApiKey.DELETE_TOPICS] = replace(rows[ApiKey.DELETE_TOPICS], on_error=on_error)
        async with serving(rows) as broker:
            broker.node.controller_channel = Refuses()
            client = await broker.client()
            fields = {"topics": [{"name": f"topic-{n}"} for n in range(names)]}
            answer = await client.request(ApiKey.DELETE_TOPICS, 6, fields)
            assert [each.name for each in answer.responses] == [f"topic-{n}" for n in range(names)]
            assert {each.error_code for each in answer.responses} == {ErrorCode.REQUEST_TIMED_OUT}
            client.close()
        assert (threads == [threading.get_ident()]) is (names == 1)

    test()


@pytest.mark.parametrize("names", [1, 400], ids=["short", "long"])
def test_what_waits_for_a_controller_is_called_off_with_its_client(names: int) -> None:
    """Else clients that come and go while there is none fill the node's memory."""

    @on_a_loop
    async def test():
        often = ServerLimits(max_idle_s=0.1)  # is looked for who has gone
        async with serving(rows_with(lambda *_: None), often) as broker:
            broker.node.controller_channel = nobody = ToNobody()
            client = await broker.client()
            fields = {"topics": [{"name": f"topic-{n}"} for n in range(names)]}
            client.send(ApiKey.DELETE_TOPICS, 6, (encode_request(ApiKey.DELETE_TOPICS, 6, fields),))
            await until(lambda: nobody.asked)
            assert nobody.called_off == 0
            client.close()
            await until(lambda: nobody.called_off)
            await until(lambda: broker.server.memory.queued["PLAINTEXT"].used_bytes == 0)

    test()
