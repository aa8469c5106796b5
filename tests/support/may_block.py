"""Tests may wait for a disk wherever they like."""

from __future__ import annotations

from typing import Final

from metadata_quorum.foundation.blocking import MayBlock

MAY_BLOCK: Final = MayBlock("a test")
