"""Names in Produce and Fetch that no topic can have: they are not even decoded."""

from __future__ import annotations

import pytest

from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import MalformedMessage, encode_request
from kraft.wire.fast_fetch_request import read_fetch_request
from kraft.wire.fast_produce import read_produce_request

LONGEST = "t" * 249
IMPOSSIBLE = ["t" * 250, "\N{GRINNING FACE}" + "t" * 32_000, "caf\N{LATIN SMALL LETTER E WITH ACUTE}"]

pytestmark = pytest.mark.row("P7")


def produced(version: int, name: str) -> str:
    topics = [{"name": name, "partition_data": [{"index": 0, "records": None}]}]
    body = encode_request(ApiKey.PRODUCE, version, {"acks": 1, "topic_data": topics})
    return read_produce_request(version, memoryview(body), 10).partitions[0].topic


def fetched(version: int, name: str) -> str:
    topics = [{"topic": name, "partitions": [{"partition": 0}]}]
    body = encode_request(ApiKey.FETCH, version, {"topics": topics})
    return read_fetch_request(version, memoryview(body)).partitions[0].topic


def forgotten(version: int, name: str) -> str:
    topics = [{"topic": name, "partitions": [0]}]
    body = encode_request(ApiKey.FETCH, version, {"forgotten_topics_data": topics})
    return read_fetch_request(version, memoryview(body)).forgotten[0][1]


@pytest.mark.parametrize(
    ("read", "version"),
    [(produced, 8), (produced, 12), (fetched, 11), (fetched, 12), (forgotten, 11), (forgotten, 12)],
)
def test_a_name_that_no_topic_can_have_is_refused(read, version):
    """A fetch session kept 900 of 32 KB, each character of which takes four bytes: 110 MiB."""
    assert read(version, LONGEST) == LONGEST
    for name in IMPOSSIBLE:
        with pytest.raises(MalformedMessage):
            read(version, name)
