"""Clients that were just being started."""

from __future__ import annotations

import pytest

from chaos.workload import Workload


class Interrupted(Workload):
    """By Ctrl-C, when some of its clients run: each until it is told to stop."""

    def __init__(self) -> None:
        self.is_closed = False

    def start(self) -> None:
        raise KeyboardInterrupt

    def close(self) -> None:
        self.is_closed = True


def test_none_is_left_to_keep_the_process_from_its_end() -> None:
    workload = Interrupted()
    with pytest.raises(KeyboardInterrupt), workload:
        pass
    assert workload.is_closed
