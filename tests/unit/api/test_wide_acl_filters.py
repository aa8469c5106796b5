"""Filters that mean many names, in a request that deletes: each goes through all access control entries, and
a fence waits for the command that they are in."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kraft.api import acls
from kraft.api.authz.authorizer import Authorizer
from kraft.api.request_context import RequestContext
from metadata_quorum.decisions.table import decide
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from metadata_quorum.protocol.commands import DeleteAcls
from tests.support.contexts import controller_context, node_context
from tests.support.virtual_loop import run_virtually

pytestmark = pytest.mark.row("P7")


class Controller:
    """Decides, and notes at how many entries a command looks."""

    def __init__(self, entries: int) -> None:
        self.image = MetadataImage(acls={each.id: each for each in map(_acl, range(entries))})
        self.looked_at: list[int] = []

    async def propose(self, command: DeleteAcls) -> Any:
        self.looked_at.append(len(command.filters) * len(self.image.acls))
        decision = decide(self.image, command)
        gone = {each.id for each in decision.records if isinstance(each, RemoveAccessControlEntryRecord)}
        if gone:
            self.image = MetadataImage(
                acls={id: acl for id, acl in self.image.acls.items() if id not in gone}
            )
        return decision.reply


def _acl(number: int) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=UUID(int=number), resource_type=2, resource_name=f"t{number}", pattern_type=3,
        principal="User:anna", host="*", operation=3, permission_type=3,
    )  # fmt: skip


def _filter(name: str | None, host: str) -> Any:
    return SimpleNamespace(
        resource_type_filter=2, resource_name_filter=name, pattern_type_filter=3, principal_filter=None,
        host_filter=host, operation=1, permission_type=1,
    )  # fmt: skip


def _deleted(controller: Controller, filters: list[Any]) -> list[Any]:
    answers: list[Any] = []

    async def test() -> None:
        node = node_context(asyncio.get_running_loop(), authorizer=Authorizer())
        context = controller_context(node, quorum_controller=controller)
        ctx: RequestContext = SimpleNamespace()  # type: ignore[assignment]
        request: Any = SimpleNamespace(filters=filters)
        answer: Any = await acls.handle_delete(context, ctx, request)
        answers.extend(answer["filter_results"])

    run_virtually(test())
    return answers


def test_wide_filters_are_shared_out_over_commands_by_what_they_look_at() -> None:
    controller = Controller(entries=2000)
    answers = _deleted(controller, [_filter(None, f"host-{n}") for n in range(200)])
    assert len(answers) == 200
    assert max(controller.looked_at) <= 20_000
    assert sum(controller.looked_at) == 200 * 2000


def test_every_filter_has_its_answer_in_order() -> None:
    controller = Controller(entries=40_000)
    answers = _deleted(controller, [_filter(None, "nobody's"), _filter("t7", "*"), _filter(None, "*")])
    assert [len(each["matching_acls"]) for each in answers] == [0, 1, 0]
    assert answers[2]["error_message"], "more than may be deleted at once"


def test_filters_of_one_name_stay_together() -> None:
    controller = Controller(entries=2000)
    _deleted(controller, [_filter(f"t{n}", "*") for n in range(1500)])
    assert len(controller.looked_at) == 2


def test_an_entry_is_named_by_every_filter_that_matches_it_whichever_command_deletes_it() -> None:
    controller = Controller(entries=40_000)
    filters = [_filter("t7", "*"), *(_filter(None, f"host-{n}") for n in range(3)), _filter("t7", "*")]
    any_host = _filter("t7", "*")
    any_host.host_filter, any_host.pattern_type_filter = None, 2  # a wide one
    answers = _deleted(controller, [*filters, any_host, _filter("t8", "*")])
    assert len(controller.looked_at) > 2
    named = [[acl["resource_name"] for acl in each["matching_acls"]] for each in answers]
    assert named == [["t7"], [], [], [], ["t7"], ["t7"], ["t8"]]
