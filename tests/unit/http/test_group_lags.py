"""What a leader is asked to count has room in one request: a longer one it refuses, and hangs up."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraft.api.record_counts import MOST_BYTES
from kraft.http.group_lags import by_leader
from kraft.wire.record_counts import encode_offsets
from metadata_quorum.foundation.model import PartitionRegistration, TopicPartition
from metadata_quorum.metadata.image import MetadataImage, TopicImage

pytestmark = pytest.mark.row("U5")

LED = PartitionRegistration((1,), (1,), 1, 0, 0)


def image_of(topics: list[str]) -> MetadataImage:
    return MetadataImage(
        topics_by_name={name: TopicImage(name, UUID(int=n + 1), {0: LED}) for n, name in enumerate(topics)}
    )


@pytest.mark.parametrize(
    ("topics", "offsets_each"),
    [([f"{n:0>249}" for n in range(3000)], 1), (["few"], 20_000), ([f"t{n}" for n in range(30)], 5000)],
    ids=["long names", "very many groups of one partition", "many groups"],
)
def test_a_request_is_no_longer_than_is_taken(topics: list[str], offsets_each: int) -> None:
    groups = [{"offsets": [[name, 0, 2**62 + n] for name in topics]} for n in range(offsets_each)] + [
        {"offsets": [["small", 0, 1]]}
    ]
    asked = by_leader({1: {"groups": groups}}, image_of([*topics, "small"]))[1]
    assert len(encode_offsets(asked)) <= MOST_BYTES
    assert TopicPartition("small", 0) in asked
    assert len(topics) < 30 or len(asked) > 2
