"""Frames as they are on the wire, in hexadecimal: Kafka's messages, and Raft's between voters.

    request API VERSION [FIELD=JSON…]           a frame from client "c" with correlation id 7
    response API VERSION [FIELD=JSON…]          its answer
    read request|response API VERSION HEX…      a body: its fields, or why it is none
    read-header HEX…                            a request's header, without the length before it
    raft MESSAGE [FIELD=VALUE…]                 a message of voter incarnation 7; `entries` as TERM:COMMAND,…
    read-raft HEX…                              the message in a frame, or why it is none

Of a frame that is written, its parts are printed one by one; it is read again, and must mean the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import (
    MalformedMessage,
    Message,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from kraft.wire.header import (
    MalformedHeader,
    read_request_header,
    request_header,
    response_body,
    response_prefix,
)
from metadata_quorum.raft import messages
from metadata_quorum.raft.messages import EntryKind, LogEntry, MalformedFrame
from tests.golden.scenario_runner import run_scenario, scenarios

CORRELATION_ID = 7
INCARNATION = UUID(int=7)
LENGTH_BYTES = 4
RAFT_HEADER_BYTES = 26
LINE_BYTES = 32


@pytest.mark.parametrize("path", scenarios("frames"))
def test_scenario(path: Path) -> None:
    run_scenario(path, Scenario())


class Scenario:
    def do_request(self, api: str, version: str, *fields: str) -> list[str]:
        key, number = ApiKey[api], int(version)
        body = encode_request(key, number, values_of(fields))
        header = request_header(key, number, CORRELATION_ID, "c")
        found = read_request_header(memoryview(header + body))
        assert found == (key, number, CORRELATION_ID, "c", len(header))
        assert encode_request(key, number, decode_request(key, number, body)) == body
        length = (len(header) + len(body)).to_bytes(LENGTH_BYTES)
        return [*hex_lines("length", length), *hex_lines("header", header), *hex_lines("body", body)]

    def do_response(self, api: str, version: str, *fields: str) -> list[str]:
        key, number = ApiKey[api], int(version)
        body = encode_response(key, number, values_of(fields))
        prefix = response_prefix(key, number, CORRELATION_ID, len(body))
        frame = memoryview(prefix + body)[LENGTH_BYTES:]
        assert frame[response_body(key, number, frame) :] == body
        assert encode_response(key, number, decode_response(key, number, body)) == body
        length, header = prefix[:LENGTH_BYTES], prefix[LENGTH_BYTES:]
        return [*hex_lines("length", length), *hex_lines("header", header), *hex_lines("body", body)]

    def do_read(self, kind: str, api: str, version: str, *hexadecimal: str) -> list[str]:
        decode = decode_request if kind == "request" else decode_response
        try:
            return fields_of(decode(ApiKey[api], int(version), bytes.fromhex("".join(hexadecimal))))
        except MalformedMessage as error:
            return [f"refused: {error}"]

    def do_read_header(self, *hexadecimal: str) -> list[str]:
        try:
            return [str(read_request_header(memoryview(bytes.fromhex("".join(hexadecimal)))))]
        except MalformedHeader as error:
            return [f"refused: {error}"]

    def do_raft(self, name: str, *fields: str) -> list[str]:
        named = dict(field.split("=", 1) for field in fields)
        values: dict[str, Any] = {key: raft_value(key, text) for key, text in named.items()}
        if "entries" in named:
            values["entries"] = log_entries(named["entries"], values["prev_index"])
        message = getattr(messages, name)(**values)
        frame = messages.encode(INCARNATION, message)
        assert messages.decode(frame) == (INCARNATION, message)
        header, rest = frame[:RAFT_HEADER_BYTES], frame[RAFT_HEADER_BYTES:]
        return [*hex_lines("header", header), *hex_lines("fields", rest)]

    def do_read_raft(self, *hexadecimal: str) -> list[str]:
        try:
            frame = messages.decode(bytes.fromhex("".join(hexadecimal)))
        except MalformedFrame as error:
            return [f"refused: {error}"]
        return [f"of {frame.incarnation}: {frame.message}"]


def values_of(fields: tuple[str, ...]) -> dict[str, Any]:
    return {name: json.loads(text) for name, _, text in (field.partition("=") for field in fields)}


def raft_value(name: str, text: str) -> object:
    if name == "data":
        return text.encode()
    return text == "yes" if text in ("yes", "no") else text if name == "entries" else int(text)


def log_entries(text: str, prev_index: int) -> tuple[LogEntry, ...]:
    pairs = (entry.split(":") for entry in text.split(","))
    return tuple(
        (bytes([EntryKind.COMMAND]) + command.encode(), index, int(term))
        for index, (term, command) in enumerate(pairs, prev_index + 1)
    )


def hex_lines(name: str, data: bytes) -> list[str]:
    """Groups of four bytes."""
    pieces = [data[at : at + LINE_BYTES] for at in range(0, len(data), LINE_BYTES)] or [b""]
    return [f"{name if not n else '':6}  {piece.hex(' ', -4)}".rstrip() for n, piece in enumerate(pieces)]


def fields_of(message: Message, indent: str = "") -> list[str]:
    lines: list[str] = []
    for name, value in vars(message).items():
        if isinstance(value, list) and value and isinstance(value[0], Message):
            for n, item in enumerate(value):
                lines += [f"{indent}{name}[{n}]", *fields_of(item, indent + "    ")]
        else:
            lines.append(f"{indent}{name} = {value!r}")
    return lines
