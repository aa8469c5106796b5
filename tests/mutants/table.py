"""The mutants: what each breaks, where it was seen first, and which tests must find it."""

from __future__ import annotations

from typing import Final

from tests.mutants.controller import CONTROLLER
from tests.mutants.exactly_once import EXACTLY_ONCE
from tests.mutants.following import FOLLOWING
from tests.mutants.hostile import HOSTILE
from tests.mutants.quorum import QUORUM
from tests.mutants.storage import STORAGE

MUTANTS: Final = (*FOLLOWING, *CONTROLLER, *QUORUM, *STORAGE, *EXACTLY_ONCE, *HOSTILE)
