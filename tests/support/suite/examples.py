"""How many examples a property test tries: some in `make test`, all of them in `make test-long`."""

from __future__ import annotations

import os
from typing import Final

import hypothesis

PROFILE: Final = os.environ.get("HYPOTHESIS_PROFILE", "ci")
SHARE: Final = 1 if PROFILE == "long" else 8
"""Which part of its examples a test runs."""
ALL: Final = 100
"""Of a test that names no number."""


def examples(count: int) -> int:
    return max(5, count // SHARE)


def load_profile() -> None:
    """With a deadline, or a bound on the time in which examples are made, a busy machine would fail tests; a
    fixed seed makes a failure in CI repeatable."""
    for name, is_fixed in (("ci", True), ("long", True), ("dev", False)):
        hypothesis.settings.register_profile(
            name,
            deadline=None,
            suppress_health_check=[hypothesis.HealthCheck.too_slow],
            derandomize=is_fixed,
            print_blob=True,
            max_examples=examples(ALL),
        )
    hypothesis.settings.load_profile(PROFILE)
