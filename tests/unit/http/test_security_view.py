"""Users, quotas and ACLs as the console shows them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kraft.http.api import BASE, ROUTES, Asked, Service
from kraft.http.security_view import MOST, acls, quotas, users
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import AccessControlEntryRecord
from metadata_quorum.security.acls import AclOperation, AclPermissionType, AclResourceType, PatternType
from metadata_quorum.security.scram import ScramMechanism, derive, salted

SALT = b"salt of the sea"


def test_users_are_told_without_what_is_kept_of_their_passwords() -> None:
    found = {
        (name, int(each)): derive(name, each, salted(each, "secret", SALT, 4096), SALT, 4096)
        for name, each in (
            ("sara", ScramMechanism.SHA_512),
            ("sara", ScramMechanism.SHA_256),
            ("ann", ScramMechanism.SHA_256),
        )
    }
    told = users(MetadataImage(scram=found))
    assert told == {
        "users": [
            {"name": "ann", "mechanisms": ["SCRAM-SHA-256"]},
            {"name": "sara", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]},
        ],
        "more": 0,
    }


def entry(number: int) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=UUID(int=number), resource_type=AclResourceType.TOPIC, resource_name=f"t{number:04}",
        pattern_type=PatternType.PREFIXED, principal="User:ann", host="*", operation=AclOperation.READ,
        permission_type=AclPermissionType.DENY,
    )  # fmt: skip


def test_acls_are_told_in_words_and_not_without_end() -> None:
    told = acls(MetadataImage(acls={UUID(int=i): entry(i) for i in range(MOST + 3)}))
    assert len(told["acls"]) == MOST
    assert told["more"] == 3
    assert told["acls"][0] == {
        "resource_type": "TOPIC", "resource": "t0000", "pattern": "PREFIXED", "principal": "User:ann",
        "host": "*", "operation": "READ", "permission": "DENY",
    }  # fmt: skip


def test_quotas_are_told_with_everybodys() -> None:
    told = quotas(MetadataImage(quotas={(("user", "ann"), ("client-id", None)): {"producer_byte_rate": 1e6}}))
    assert json.loads(json.dumps(told)) == {
        "quotas": [
            {
                "entity": [{"type": "user", "name": "ann"}, {"type": "client-id", "name": None}],
                "limits": {"producer_byte_rate": 1e6},
            }
        ],
        "more": 0,
    }


@pytest.mark.parametrize("kind", ["acls", "users", "quotas"])
def test_very_many_are_gone_through_beside_the_loop(kind: str) -> None:
    made: list[str] = []

    async def beside(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        made.append(kind)
        return work()

    node = SimpleNamespace(image=MetadataImage(), authorizer=None)
    service = SimpleNamespace(sources=SimpleNamespace(node=node), view=SimpleNamespace(beside=beside))
    asked = Asked(cast(Any, SimpleNamespace(may_see_quotas=lambda: True)), {}, {})
    (route,) = (each for each in ROUTES if each.path == f"{BASE}/{kind}")
    assert asyncio.run(cast(Any, route.answer(cast(Service, service), asked)))[kind] == []
    assert made == [kind]
