"""Requests of the APIs that are ours, as no node sends them. Made by hand: most of these have no schema."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from kraft.api.client_envelope import ENCLOSED
from kraft.api.envelope import ENVELOPE_VERSION, encode_address, encode_principal
from kraft.api.record_counts import MOST_BYTES
from kraft.wire import raft_frame
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import encode_request
from kraft.wire.header import request_header
from tests.support.clients.hostile_requests import HostileRequest, hostile_requests

VERSION: Final = 0
"""Of each of these APIs."""
EVERY_FOURTH: Final = 4

JSON_VALUES: Final = ("", "null", "0", "[]", '""', "{}", "{", "NaN", "1e999", "[" * 100_000, "\\ud800", "\0")


def of_brokers(topic: str, topic_id: UUID) -> Iterator[HostileRequest]:
    """For a broker's listener."""
    for what, body in _record_counts(topic):
        yield HostileRequest(ApiKey.RECORD_COUNTS, VERSION, what, body)
    for what, body in (("plausible", b""), ("goes on", bytes(1000)), ("is long", bytes(MOST_BYTES))):
        yield HostileRequest(ApiKey.NODE_VIEW, VERSION, what, body)
    for request in hostile_requests(ApiKey.ENVELOPE, ENVELOPE_VERSION, topic_id):
        yield request._replace(api_key=ApiKey.CLIENT_ENVELOPE, version=VERSION)
    for key, version in ENCLOSED:
        for request in list(hostile_requests(ApiKey(key), version, topic_id))[::EVERY_FOURTH]:
            yield request._replace(
                api_key=ApiKey.CLIENT_ENVELOPE,
                version=VERSION,
                what=f"encloses {request}",
                body=_enveloped(request),
            )


def of_controllers(cluster_id: str, target: int) -> Iterator[HostileRequest]:
    """For a controller's listener."""
    for frame in (b"", b"\1", bytes(26), b"\1\5" + b"\xff" * 100, bytes(MOST_BYTES)):
        for source in (-(2**31), 0, target, target + 1):
            whole = raft_frame.encode(raft_frame.RaftFrame(cluster_id, source, target, frame))
            for end in (len(whole), len(whole) - 1, len(whole) // 2, 1):
                what = f"{len(frame)} bytes from {source}, of {len(whole)} bytes {end}"
                yield HostileRequest(ApiKey.RAFT_FRAME, VERSION, what, whole[:end])
    for lie in (-1, -(2**15), 2**15 - 1):
        yield HostileRequest(ApiKey.RAFT_FRAME, VERSION, f"a name of {lie} bytes", struct.pack(">h", lie))


def _record_counts(topic: str) -> Iterator[tuple[str, bytes]]:
    yield "plausible", json.dumps({topic: {"0": [0]}}).encode()
    for value in JSON_VALUES:
        for whole in (value, f'{{"{topic}":{value}}}', f'{{"{topic}":{{"0":{value}}}}}'):
            yield f"{whole[:40]}, {len(whole)} bytes", whole.encode()
        yield f"an offset that is {value[:20]}", f'{{"{topic}":{{"0":[{value}]}}}}'.encode()
    for number in (-(2**63), -1, 2**31, 2**64, 10**4000, 10**5000):
        digits = f"{number:x}" if number > 10**4299 else str(number)
        yield f"partition {digits[:20]}", f'{{"{topic}":{{"{digits}":[0]}}}}'.encode()
        yield f"offset {digits[:20]}", f'{{"{topic}":{{"0":[{digits}]}}}}'.encode()
    yield "many offsets", _filled(f'{{"{topic}":{{"0":[', "0,", "0]}}")
    yield "many times one partition", _filled(f'{{"{topic}":{{', '"0":[0],', '"1":[]}}')
    yield "many lists", _filled(f'{{"{topic}":{{"0":[', "[],", "0]}}")
    yield "many partitions", _numbered(f'{{"{topic}":{{', '"{}":[],', '"0":[]}}')
    yield "many topics", _numbered("{", '"{:x}":{{"0":[]}},', '"a":{}}')
    yield "too long", _filled(f'{{"{topic}":{{"0":[', "0,", "0]}}") + b" " * 100


def _filled(start: str, item: str, end: str, size: int = MOST_BYTES) -> bytes:
    return (start + item * ((size - len(start) - len(end)) // len(item)) + end).encode()


def _numbered(start: str, item: str, end: str, size: int = MOST_BYTES) -> bytes:
    """Each item says its number."""
    items = "".join(map(item.format, range(size // len(item.format(99_999)))))
    return (start + items + end).encode()


def _enveloped(request: HostileRequest) -> bytes:
    frame = request_header(request.api_key, request.version, 1, "hostile") + request.body
    fields = {
        "request_data": frame,
        "request_principal": encode_principal("User:anna"),
        "client_host_address": encode_address("127.0.0.1"),
    }
    return encode_request(ApiKey.ENVELOPE, ENVELOPE_VERSION, fields)
