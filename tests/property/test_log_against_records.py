"""A log against a list of records: whatever is put, transacted, rolled, cleaned, truncated, killed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from data_plane.log.config import LogConfig
from tests.property.log_histories import RETENTION_MS, draw, play, shrunk

DELETED: Final = LogConfig(segment_bytes=400, index_interval_bytes=100)
COMPACTED: Final = replace(
    DELETED,
    cleanup_policy=("compact",),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=RETENTION_MS,
)

CONFIGS: Final = {
    "compacted": COMPACTED,
    "deleted": DELETED,
    "both": replace(
        COMPACTED, cleanup_policy=("compact", "delete"), retention_bytes=1_500, retention_ms=60_000
    ),
    "one batch a segment": replace(COMPACTED, segment_bytes=180, delete_retention_ms=0),
}


def run_seeds(config: LogConfig, seeds: range) -> None:
    for seed in seeds:
        moves = draw(seed)
        if play(config, moves)[1] is not None:
            moves = shrunk(lambda fewer: play(config, fewer)[1] is not None, moves)
            story, error = play(config, moves)
            pytest.fail(f"seed {seed}: {error}\n  " + "\n  ".join(story))


@pytest.mark.row("L1", "L4", "L7")
@pytest.mark.parametrize("config", CONFIGS)
def test_a_log_is_what_was_written(config: str) -> None:
    run_seeds(CONFIGS[config], range(40))


@pytest.mark.long
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("start", range(1_000, 41_000, 5_000))
def test_a_log_is_what_was_written_in_thousands_of_histories(config: str, start: int) -> None:
    run_seeds(CONFIGS[config], range(start, start + 5_000))
