"""Members stand still until their group has gone on without them, and commit then; or have a commit under way
that their own join overtakes. It is refused, and a coordinator that takes it is found."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from chaos.simulator.profile import PROFILES
from chaos.simulator.run import Outcome, Simulation
from data_plane.coordinator.groups.classic import group
from metadata_quorum.foundation.errors import ErrorCode

pytestmark = pytest.mark.heavy


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    """What nodes say of members that are gone."""
    logger = logging.getLogger("data_plane")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


def played() -> Outcome:
    return Simulation(6, PROFILES["groups"], 10.0, faults=[]).run()


def test_late_commits_are_refused() -> None:
    outcome = played()
    assert outcome.violations == []
    assert outcome.story.visited["late commit refused"]
    owned = [operation for operation in outcome.history.operations if operation.f == "owned"]
    assert owned
    assert all(operation.start < operation.end for operation in owned), "answers overtake each other"


@pytest.mark.pure("a bug is planted in Python")
@pytest.mark.parametrize("refusal", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_late_commit_that_is_taken_is_found(refusal: ErrorCode, monkeypatch: pytest.MonkeyPatch) -> None:
    check = group.check_commit

    def taken(*args: object) -> object:
        member = check(*args)  # type: ignore[arg-type]  # as it is called
        return ErrorCode.NONE if member is refusal else member

    monkeypatch.setattr(group, "check_commit", taken)
    assert "stale-commit" in {violation.rule for violation in played().violations}
