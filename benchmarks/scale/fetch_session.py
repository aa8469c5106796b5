"""A consumer's fetch session over very many partitions: opening it, and asking again when nothing is new."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Final

from fetch.messages import FetchPartition, FetchRequest
from kraft.wire.api_keys import ApiKey
from kraft.wire.fast_fetch_request import write_fetch_request
from kraft.wire.header import request_header
from metadata_quorum.foundation.model import ZERO_UUID

VERSION: Final = 12
"""The last one that names topics: their ids need not be asked for."""
PARTITION_BYTES: Final = 1024
RESPONSE_BYTES: Final = 1 << 20
PATIENCE_S: Final = 120.0
_LENGTH: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(
    ">i"  # correlation id
    "b"  # number of tagged fields
    "i"  # throttle_time_ms
    "h"  # error_code
    "i"  # session_id
)


class FetchSession:
    """One connection to one broker, one session. A context manager."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=PATIENCE_S)
        self._file = self._socket.makefile("rb")
        self._session_id = 0
        self._epoch = 0

    def __enter__(self) -> FetchSession:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def open(self, partitions: Sequence[tuple[str, int]]) -> None:
        """The full request, from the beginning of each; topics in one piece each."""
        self._session_id = self._fetch(
            [FetchPartition(ZERO_UUID, topic, number, 0, PARTITION_BYTES) for topic, number in partitions]
        )

    def poll(self) -> None:
        """An incremental request that changes nothing, answered at once."""
        self._fetch([])

    def _fetch(self, partitions: list[FetchPartition]) -> int:
        request = FetchRequest(
            partitions,
            max_wait_ms=0,
            max_bytes=RESPONSE_BYTES,
            session_id=self._session_id,
            session_epoch=self._epoch,
            uses_topic_ids=False,
        )
        self._epoch += 1
        body = request_header(ApiKey.FETCH, VERSION, self._epoch, "scale") + write_fetch_request(
            VERSION, request
        )
        self._socket.sendall(_LENGTH.pack(len(body)) + body)
        (size,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
        _, _, _, error, session_id = _HEAD.unpack_from(self._file.read(size))
        if error:
            raise ValueError(f"a fetch of {len(partitions)} partitions is answered with error {error}")
        return int(session_id)
