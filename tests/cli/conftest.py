"""Commands that run in the tests' own process are as patient as those that are forked."""

from __future__ import annotations

import pytest

from tests.support.nodes.patience import be_patient


@pytest.fixture(autouse=True)
def _patient_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch.setattr)
