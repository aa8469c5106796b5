"""A log against a list of records: whatever is put, transacted, rolled, cleaned, truncated, moved, killed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from data_plane.log.config import LogConfig
from tests.property.log_histories import RETENTION_MS, History, play
from tests.property.log_steps import Step, draw, shrunk

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
        steps = draw(seed)
        if play(config, steps)[1] is not None:
            steps = shrunk(lambda fewer: play(config, fewer)[1] is not None, steps)
            story, error = play(config, steps)
            pytest.fail(f"seed {seed}: {error}\n  " + "\n  ".join(story))


@pytest.mark.row("L1", "L4", "L7")
@pytest.mark.parametrize("config", CONFIGS)
def test_a_log_is_what_was_written(config: str) -> None:
    run_seeds(CONFIGS[config], range(40))


@pytest.mark.row("L8")
@pytest.mark.parametrize("was_empty", [False, True])
def test_a_log_moves_though_its_beginning_is_deleted_meanwhile(was_empty: bool) -> None:
    """By DeleteRecords or by retention, between any two pieces of the move's work."""
    for steps in range(9):
        history = History(DELETED)
        some_puts, some_moves = [Step("put", (0, 0, 0, 0), 0)] * 4, [Step("move", (0, 0), 0)] * steps
        before = [*some_moves, *some_puts] if was_empty else [*some_puts, *some_moves]
        for step in [*before, Step("delete_records", (2,), 0)]:
            history.make(step)
        while history.path.startswith("/d"):
            history.make(Step("move", (0, 0), 0))
        history.check()
        assert history.log.log_start_offset == 2


@pytest.mark.long
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("start", range(1_000, 41_000, 5_000))
def test_a_log_is_what_was_written_in_thousands_of_histories(config: str, start: int) -> None:
    run_seeds(CONFIGS[config], range(start, start + 5_000))
