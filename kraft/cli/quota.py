"""`kraft quota`: what users, client ids and addresses may use.

It uses our own client: confluent-kafka has no calls for quotas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import typer

from kraft.cli.bootstrap import any_broker
from kraft.cli.confluent_client import DEFAULT_BOOTSTRAP, Bootstrap, ReadingBootstrap, key_values
from kraft.cli.errors import CliError, UsageError
from kraft.cli.tables import prints_table, show
from kraft.cli.wire_client import request
from kraft.wire.api_keys import ApiKey
from kraft.wire.malformed import only
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.quota_types import CLIENT_ID, IP, USER

VERSIONS: Final = (0, 1)
_EXACT, _DEFAULT = 0, 1
"""How a filter takes a name."""

app = typer.Typer(no_args_is_help=True)

User = Annotated[str | None, typer.Option(help="'' for all users without a quota of their own.")]
ClientId = Annotated[str | None, typer.Option("--client-id", help="'' for all other client ids.")]
Ip = Annotated[str | None, typer.Option(help="'' for all other addresses.")]

Entity = Mapping[str, str | None]
"""The name for each kind of coordinate, None for the default."""


@app.command("list")
@prints_table
def list_(
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    bootstrap: ReadingBootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List quotas: all, or those of the user, client id or address."""
    rows = [
        (_entity_text(entity), key, f"{value:g}" if value < 1e6 else f"{value:.0f}")
        for entity, values in _described(bootstrap, _entity(user, client_id, ip), strict=False)
        for key, value in values.items()
    ]
    show(("entity", "quota", "value"), sorted(rows))


@app.command("set")
def set_(
    quotas: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...")],
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Set quotas: producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate (of a
    user, a client id, or both), connection_creation_rate (of an address)."""
    values = {}
    for key, text in key_values(quotas, "a quota").items():
        try:
            values[key] = float(text)
        except ValueError:
            raise UsageError(f"{key}={text}: a quota is a number") from None
    entity = _named(user, client_id, ip)
    _alter(bootstrap, entity, dict(values))
    print(f"Set {', '.join(quotas)} for {_entity_text(entity)}.")


@app.command()
def delete(
    quotas: Annotated[list[str], typer.Argument(metavar="[KEY]...", help="All, where none is named.")] = [],  # noqa: B006
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Take quotas away."""
    entity = _named(user, client_id, ip)
    found = {key for _, values in _described(bootstrap, entity, strict=True) for key in values}
    if missing := [key for key in quotas if key not in found] or ([] if found else ["quota"]):
        raise CliError(f"{_entity_text(entity)}: there is no {', '.join(missing)}")
    gone = quotas or sorted(found)
    _alter(bootstrap, entity, dict.fromkeys(gone))
    print(f"Deleted {', '.join(gone)} of {_entity_text(entity)}.")


def _entity(user: str | None, client_id: str | None, ip: str | None) -> Entity:
    given = {USER: user, CLIENT_ID: client_id, IP: ip}
    return {kind: name or None for kind, name in given.items() if name is not None}


def _named(user: str | None, client_id: str | None, ip: str | None) -> Entity:
    entity = _entity(user, client_id, ip)
    if not entity:
        raise UsageError("whose quota? Give --user, --client-id, both, or --ip")
    return entity


def _entity_text(entity: Entity) -> str:
    """The user first."""
    pairs = sorted(entity.items(), key=lambda pair: pair[0], reverse=True)
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in pairs)


def _described(bootstrap: str, entity: Entity, *, strict: bool) -> list[tuple[Entity, dict[str, float]]]:
    components = [
        {"entity_type": kind, "match_type": _DEFAULT if name is None else _EXACT, "match": name}
        for kind, name in entity.items()
    ]
    fields = {"components": components, "strict": strict}
    answer = request(any_broker(bootstrap), ApiKey.DESCRIBE_CLIENT_QUOTAS, VERSIONS, fields)
    if answer.error_code != ErrorCode.NONE:
        raise BrokerError(ErrorCode(answer.error_code), answer.error_message or "")
    return [
        (
            {each.entity_type: each.entity_name for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries or ()
    ]


def _alter(bootstrap: str, entity: Entity, values: Mapping[str, float | None]) -> None:
    """None takes one away."""
    coordinates = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    operations = [
        {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
        for key, value in values.items()
    ]
    wish = {"entity": coordinates, "ops": operations}
    fields = {"entries": [wish], "validate_only": False}
    result = only(request(any_broker(bootstrap), ApiKey.ALTER_CLIENT_QUOTAS, VERSIONS, fields).entries)
    if result.error_code != ErrorCode.NONE:
        raise BrokerError(ErrorCode(result.error_code), result.error_message or "")
