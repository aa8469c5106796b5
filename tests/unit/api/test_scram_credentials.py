"""AlterUserScramCredentials: what is refused before the quorum judges it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.api.scram_credentials import handle_alter
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.protocol.commands import AlterUserScram, ScramDeletion
from metadata_quorum.protocol.replies import UserResult
from tests.support.contexts import controller_context, node_context


def upsertion(name: str, salted_password: bytes) -> Any:
    return SimpleNamespace(
        name=name, mechanism=1, iterations=4096, salt=b"s", salted_password=salted_password
    )


@pytest.mark.row("U4")
def test_nobody_gets_a_password_that_everybody_knows() -> None:
    """Nothing of such a user is altered; others are."""
    request: Any = SimpleNamespace(
        deletions=[SimpleNamespace(name="anna", mechanism=2)],
        upsertions=[upsertion("anna", b""), upsertion("bert", b"p" * 32)],
    )
    proposed: list[AlterUserScram] = []

    async def propose(command: AlterUserScram) -> list[UserResult]:
        proposed.append(command)
        return [UserResult(each.name) for each in command.upsertions]

    async def ask() -> Any:
        node = node_context(asyncio.get_running_loop())
        controller: Any = controller_context(node, quorum_controller=SimpleNamespace(propose=propose))
        return await handle_alter(controller, SimpleNamespace(), request)  # type: ignore[arg-type]

    answers = {each["user"]: each["error_code"] for each in asyncio.run(ask())["results"]}
    assert answers == {"anna": ErrorCode.UNACCEPTABLE_CREDENTIAL, "bert": ErrorCode.NONE}
    (command,) = proposed
    assert not any(isinstance(each, ScramDeletion) for each in command.deletions)
    assert [each.name for each in command.upsertions] == ["bert"]
