"""How much of one item of a request is looked at. Very many items are processed in slices (slices.py), but
one of them at once, and on every voter.

    a list that no legitimate request makes so long -> check_few: refused (docs/DIFFERENCES.md)
    replicas that are assigned by hand -> enough_replicas: the decision refuses them as it would all of them
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.metadata.image import MetadataImage

MOST_OF_A_KIND: Final = 1000
"""Of listeners, features or log directories, that a node has; of members of an ISR; of configs of a
resource."""


def check_few(*kinds: Sequence[object]) -> None:
    """Raises `BrokerError`, INVALID_REQUEST."""
    if max(map(len, kinds)) > MOST_OF_A_KIND:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"More than {MOST_OF_A_KIND} of a kind")


def enough_replicas(image: MetadataImage, broker_ids: Sequence[int]) -> tuple[int, ...]:
    """All replicas of a partition, or one more than there are brokers: among these one is there twice, or no
    broker."""
    return tuple(broker_ids[: len(image.brokers) + 1])
