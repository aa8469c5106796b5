"""The metadata as this node has acted on it: one value that is replaced, for all its readers."""

from __future__ import annotations

from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage


class MetadataCache:
    """Holds the newest image. A broker's metadata publisher replaces it, or `take` on a node without one."""

    __slots__ = ("image",)

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image

    def take(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """The next image."""
        self.image = image
