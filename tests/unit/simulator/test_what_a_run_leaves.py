"""What a killed node was about to do is garbage when its test ends: it fails no other one."""

from __future__ import annotations

import pytest


async def what_was_about_to_be_done() -> None:
    pytest.fail("nobody awaits it")


def test_what_died_before_its_first_step_is_no_mistake() -> None:
    left: list[object] = [what_was_about_to_be_done()]
    left.append(left)


def test_nor_that_of_the_next_test() -> None:
    """Whose set-up met it."""
