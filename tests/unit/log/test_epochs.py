"""Leader epochs: which leader wrote from where on."""

from __future__ import annotations

from data_plane.log.epochs import EpochCache


def cache() -> EpochCache:
    return EpochCache([(1, 0), (3, 10), (5, 30)])


def test_end_of_the_latest_epoch_is_the_end_of_the_log():
    assert cache().end_offset(5, 44) == (5, 44)


def test_end_of_an_older_epoch_is_the_start_of_the_next():
    assert cache().end_offset(3, 44) == (3, 30)
    assert cache().end_offset(4, 44) == (3, 30)


def test_unknown_epochs():
    assert cache().end_offset(6, 44) == (-1, -1)
    assert cache().end_offset(-1, 44) == (-1, -1)
    assert EpochCache([(3, 10), (5, 30)]).end_offset(2, 44) == (2, 10)
    assert EpochCache().end_offset(0, 0) == (-1, -1)


def test_epoch_at():
    assert [cache().epoch_at(offset) for offset in (0, 9, 10, 29, 30, 99)] == [1, 1, 3, 3, 5, 5]


def test_assigning_the_latest_again_changes_nothing():
    epochs = cache()
    assert not epochs.assign(5, 40)
    assert not epochs.dirty


def test_an_empty_epoch_gives_way():
    epochs = cache()
    epochs.assign(6, 44)
    epochs.assign(7, 44)
    assert epochs.entries == [(1, 0), (3, 10), (5, 30), (7, 44)]


def test_an_entry_that_contradicts_is_dropped():
    epochs = cache()
    epochs.assign(4, 20)
    assert epochs.entries == [(1, 0), (3, 10), (4, 20)]
    assert epochs.latest == 4


def test_truncation_at_the_end():
    epochs = cache()
    epochs.truncate_from_end(30)
    assert epochs.entries == [(1, 0), (3, 10)]
    epochs.truncate_from_end(5)
    assert epochs.entries == [(1, 0)]
    epochs.truncate_from_end(0)
    assert epochs.entries == []
    assert epochs.latest == -1


def test_truncation_at_the_start_moves_the_epoch_there():
    epochs = cache()
    epochs.truncate_from_start(15)
    assert epochs.entries == [(3, 15), (5, 30)]
    epochs.truncate_from_start(99)
    assert epochs.entries == [(5, 99)]
