"""Clients that misuse their connections: many idle ones, unfinished requests, replies nobody reads.

What a connection costs the node is bounded, and others are served meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
from collections.abc import Iterator
from typing import Final

import pytest

from kraft.local.free_ports import HOST
from kraft.monitoring.stall_watch import RECORD_ENVIRONMENT
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import encode_request
from kraft.wire.header import request_header
from tests.robustness.live_node import MIB, TOPIC, LiveNode
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.row("P7")

IDLE: Final = 10_000
KIB: Final = 1024


def request(api_key: ApiKey, version: int, **fields: object) -> bytes:
    frame = request_header(api_key, version, 1, "trouble") + encode_request(api_key, version, fields)
    return struct.pack(">i", len(frame)) + frame


@contextlib.contextmanager
def connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection((HOST, port), PATIENCE_S)) for _ in range(count)]


@contextlib.contextmanager
def many_files() -> Iterator[int]:
    """How many connections this process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield IDLE if hard == resource.RLIM_INFINITY else min(IDLE, hard - 500)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_stalls_of_the_nodes_loop_are_reported_to_this_suite(live: LiveNode):
    assert live.process.environ()[RECORD_ENVIRONMENT] == os.environ[RECORD_ENVIRONMENT]


def test_ten_thousand_idle_connections(live: LiveNode):
    files, before = live.process.num_fds(), live.rss
    with many_files() as count, connections(live.port, count):
        wait_until(lambda: live.process.num_fds() >= files + count - 100, "the node has taken them all")
        live.serves_stock_clients()
        assert (live.rss - before) / count < 8 * KIB
    wait_until(lambda: live.process.num_fds() < files + 100, "they are gone")
    live.serves_stock_clients()  # the turn in which they ended is over


def test_large_requests_that_never_end(live: LiveNode):
    """Each claims as much as is allowed, and stops after its first bytes."""
    before = live.rss
    start = struct.pack(">i", 100 * MIB) + request_header(ApiKey.PRODUCE, 9, 1, "loris") + bytes(100)
    with connections(live.port, 200) as slow:
        for each in slow:
            each.sendall(start)
        live.serves_stock_clients()
        for each in slow:
            each.sendall(bytes(10))
        live.serves_stock_clients()
        assert live.rss - before < 200 * 3 * MIB


def test_one_byte_at_a_time(live: LiveNode):
    data = request(ApiKey.METADATA, 12, topics=[])
    with connections(live.port, 1) as [slow]:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for value in data:
            slow.sendall(bytes([value]))
        assert struct.unpack(">i", slow.recv(4, socket.MSG_WAITALL))[0] > 0


def test_replies_that_nobody_reads(live: LiveNode):
    """A gigabyte is asked for on each of four connections, and not a byte of it is read."""
    live.fill(2000)
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": MIB, "current_leader_epoch": -1}
    wanted = request(
        ApiKey.FETCH, 11, replica_id=-1, max_wait_ms=100, min_bytes=1, max_bytes=MIB, session_id=0,
        session_epoch=-1, topics=[{"topic": TOPIC, "partitions": [partition]}],
    )  # fmt: skip
    before = live.rss
    with connections(live.port, 4) as deaf:
        for each in deaf:
            each.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(1000):
                    each.sendall(wanted)
        for _ in range(3):
            live.serves_stock_clients()
        assert live.rss - before < 4 * 16 * MIB
