"""How long acknowledgements stopped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def longest_gap(times: Sequence[float], since: float) -> float:
    """The longest time between two neighbours of `times` (ascending) of which the later is after `since`.

    The gap that a kill at `since` makes begins with the last acknowledgement before it.
    """
    gaps = [later - earlier for earlier, later in pairwise(times) if later > since]
    if not gaps:
        raise ValueError("nothing was acknowledged on both sides of the kill")
    return max(gaps)
