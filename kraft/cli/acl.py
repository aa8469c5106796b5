"""`kraft acl`: who may do what. Options and conveniences are those of kafka-acls.

kraft acl add --allow-principal User:anna --producer --topic flights
kraft acl add --deny-principal User:bert --operation WRITE --topic f --resource-pattern-type prefixed
kraft acl list --topic flights --resource-pattern-type match
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kraft.cli.bootstrap import any_broker
from kraft.cli.confluent_client import DEFAULT_BOOTSTRAP, Bootstrap, ReadingBootstrap
from kraft.cli.errors import UsageError
from kraft.cli.tables import prints_table, show
from kraft.cli.wire_client import raise_for, request
from kraft.wire.api_keys import ApiKey
from metadata_quorum.security.acls import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    WILDCARD,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)

if TYPE_CHECKING:
    from kraft.wire.bridge import Message


app = typer.Typer(no_args_is_help=True)


class ResourcePattern(StrEnum):
    LITERAL = "literal"
    PREFIXED = "prefixed"
    MATCH = "match"
    ANY = "any"


Topics = Annotated[list[str], typer.Option("--topic", help="'*' for all; may be given again.")]
Groups = Annotated[list[str], typer.Option("--group", help="'*' for all.")]
Ids = Annotated[list[str], typer.Option("--transactional-id", help="'*' for all.")]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
PatternOption = Annotated[
    ResourcePattern,
    typer.Option("--resource-pattern-type", help="How the names are meant; match and any only to look."),
]
Allowed = Annotated[list[str], typer.Option("--allow-principal", metavar="User:NAME")]
Denied = Annotated[list[str], typer.Option("--deny-principal", metavar="User:NAME")]
AllowedHosts = Annotated[
    list[str], typer.Option("--allow-host", metavar="ADDRESS", help="Else from everywhere.")
]
DeniedHosts = Annotated[list[str], typer.Option("--deny-host", metavar="ADDRESS")]
Operations = Annotated[
    list[str], typer.Option("--operation", metavar="READ|WRITE|...", help="ALL, where none is given.")
]
AsProducer = Annotated[
    bool,
    typer.Option(
        "--producer", help="WRITE, DESCRIBE, CREATE on topics; WRITE, DESCRIBE on transactional ids."
    ),
]
AsConsumer = Annotated[bool, typer.Option("--consumer", help="READ and DESCRIBE on topics, READ on groups.")]
Idempotent = Annotated[
    bool, typer.Option("--idempotent", help="With --producer: IDEMPOTENT_WRITE on the cluster.")
]


class Resource(NamedTuple):
    """What an entry is about."""

    kind: AclResourceType
    name: str


class AclRule(NamedTuple):
    """An entry, but for the type of its pattern."""

    resource: Resource
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermissionType


@app.command("list")
@prints_table
def list_(
    topic: Topics = [],  # noqa: B006
    group: Groups = [],  # noqa: B006
    transactional_id: Ids = [],  # noqa: B006
    cluster: Cluster = False,
    resource_pattern_type: PatternOption = ResourcePattern.ANY,
    principal: Annotated[list[str], typer.Option(metavar="User:NAME", help="Only these.")] = [],  # noqa: B006
    bootstrap: ReadingBootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List entries: all, or those about some resources."""
    resources: list[Resource | None] = [*_resources(topic, group, transactional_id, cluster)]
    rows: dict[tuple[str, ...], None] = {}
    for resource in resources or [None]:
        answer = request(
            any_broker(bootstrap), ApiKey.DESCRIBE_ACLS, (1, 3), _filter(resource, resource_pattern_type)
        )
        raise_for(answer.error_code, answer.error_message or "")
        for found in answer.resources:
            rows.update(
                (row, None) for row in _rows(found, found.acls) if row[0] in principal or not principal
            )
    show(("principal", "host", "may", "operation", "resource", "pattern", "name"), sorted(rows))


@app.command()
def add(
    allow_principal: Allowed = [],  # noqa: B006
    deny_principal: Denied = [],  # noqa: B006
    allow_host: AllowedHosts = [],  # noqa: B006
    deny_host: DeniedHosts = [],  # noqa: B006
    operation: Operations = [],  # noqa: B006
    topic: Topics = [],  # noqa: B006
    group: Groups = [],  # noqa: B006
    transactional_id: Ids = [],  # noqa: B006
    cluster: Cluster = False,
    resource_pattern_type: PatternOption = ResourcePattern.LITERAL,
    producer: AsProducer = False,
    consumer: AsConsumer = False,
    idempotent: Idempotent = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Add entries: every principal, on every resource, for every operation named."""
    resources = _resources(topic, group, transactional_id, cluster)
    wishes = _operations_of(resources, operation, producer=producer, consumer=consumer, idempotent=idempotent)
    rules = list(_rules(wishes, allow_principal, allow_host, deny_principal, deny_host))
    creations = [
        {
            "resource_type": int(each.resource.kind),
            "resource_name": each.resource.name,
            "resource_pattern_type": int(_pattern(resource_pattern_type, each.resource)),
            "principal": each.principal,
            "host": each.host,
            "operation": int(each.operation),
            "permission_type": int(each.permission),
        }
        for each in rules
    ]
    for result in request(
        any_broker(bootstrap), ApiKey.CREATE_ACLS, (1, 3), {"creations": creations}
    ).results:
        raise_for(result.error_code, result.error_message or "")
    print(f"Added {len(rules)} entr{'y' if len(rules) == 1 else 'ies'}.")


@app.command()
@prints_table
def remove(
    allow_principal: Allowed = [],  # noqa: B006
    deny_principal: Denied = [],  # noqa: B006
    allow_host: AllowedHosts = [],  # noqa: B006
    deny_host: DeniedHosts = [],  # noqa: B006
    operation: Operations = [],  # noqa: B006
    topic: Topics = [],  # noqa: B006
    group: Groups = [],  # noqa: B006
    transactional_id: Ids = [],  # noqa: B006
    cluster: Cluster = False,
    resource_pattern_type: PatternOption = ResourcePattern.LITERAL,
    producer: AsProducer = False,
    consumer: AsConsumer = False,
    idempotent: Idempotent = False,
    force: Annotated[bool, typer.Option("--force", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove entries: those that `add` would add; without a principal, all of the resources named."""
    resources = _resources(topic, group, transactional_id, cluster)
    if allow_principal or deny_principal:
        wishes = _operations_of(
            resources, operation, producer=producer, consumer=consumer, idempotent=idempotent
        )
        rules = _rules(wishes, allow_principal, allow_host, deny_principal, deny_host)
        filters = [_filter(each.resource, resource_pattern_type, each) for each in rules]
    else:
        if not resources:
            raise UsageError("remove what? Give a principal or a resource")
        filters = [_filter(each, resource_pattern_type) for each in resources]
    if not force and not typer.confirm("Remove what they match?", err=True):
        raise typer.Exit(1)
    rows: list[tuple[str, ...]] = []
    for result in request(
        any_broker(bootstrap), ApiKey.DELETE_ACLS, (1, 3), {"filters": filters}
    ).filter_results:
        raise_for(result.error_code, result.error_message or "")
        rows += [row for each in result.matching_acls for row in _rows(each, [each])]
    show(("principal", "host", "may", "operation", "resource", "pattern", "name"), sorted(set(rows)))


def _resources(
    topics: Iterable[str], groups: Iterable[str], ids: Iterable[str], cluster: bool
) -> list[Resource]:
    resources = [Resource(AclResourceType.TOPIC, name) for name in topics]
    resources += [Resource(AclResourceType.GROUP, name) for name in groups]
    resources += [Resource(AclResourceType.TRANSACTIONAL_ID, name) for name in ids]
    return [*resources, Resource(AclResourceType.CLUSTER, CLUSTER_NAME)] if cluster else resources


def _operations_of(
    resources: list[Resource], operations: list[str], *, producer: bool, consumer: bool, idempotent: bool
) -> list[tuple[Resource, AclOperation]]:
    """Which operation on which resource."""
    if not (producer or consumer):
        if not resources:
            raise UsageError("rights to what? Give --topic, --group, --transactional-id or --cluster")
        named = [_operation(name) for name in operations] or [AclOperation.ALL]
        return [(resource, _fitting(resource, operation)) for resource in resources for operation in named]
    if operations:
        raise UsageError("--operation does not go with --producer or --consumer, which bring their own")
    kinds = {resource.kind for resource in resources}
    if AclResourceType.TOPIC not in kinds or (consumer and AclResourceType.GROUP not in kinds):
        raise UsageError("--producer takes a --topic, --consumer a --topic and a --group")
    operations_of: dict[AclResourceType, tuple[AclOperation, ...]] = {}
    if producer:
        operations_of[AclResourceType.TOPIC] = (
            AclOperation.WRITE,
            AclOperation.DESCRIBE,
            AclOperation.CREATE,
        )
        operations_of[AclResourceType.TRANSACTIONAL_ID] = (AclOperation.WRITE, AclOperation.DESCRIBE)
    if consumer:
        topic = (*operations_of.get(AclResourceType.TOPIC, ()), AclOperation.READ, AclOperation.DESCRIBE)
        operations_of |= {
            AclResourceType.TOPIC: tuple(dict.fromkeys(topic)),
            AclResourceType.GROUP: (AclOperation.READ,),
        }
    rights = [(each, operation) for each in resources for operation in operations_of.get(each.kind, ())]
    if idempotent and producer:
        rights.append((Resource(AclResourceType.CLUSTER, CLUSTER_NAME), AclOperation.IDEMPOTENT_WRITE))
    return rights


def _operation(name: str) -> AclOperation:
    enum_name = name.replace("-", "_").upper()
    usable = [each.name for each in AclOperation if each > AclOperation.ANY]
    if enum_name not in usable:
        raise UsageError(f"{name}: no such operation; there are {', '.join(usable)}")
    return AclOperation[enum_name]


def _fitting(resource: Resource, operation: AclOperation) -> AclOperation:
    known = OPERATIONS_OF[resource.kind]
    if operation is not AclOperation.ALL and operation not in known:
        names = ", ".join(each.name for each in known)
        raise UsageError(f"{operation.name}: a {resource.kind.name} knows {names} and ALL")
    return operation


def _rules(
    wishes: list[tuple[Resource, AclOperation]],
    allowed: list[str],
    allowed_hosts: list[str],
    denied: list[str],
    denied_hosts: list[str],
) -> Iterator[AclRule]:
    if not (allowed or denied):
        raise UsageError("whose rights? Give --allow-principal or --deny-principal User:NAME")
    for principals, hosts, permission in (
        (allowed, allowed_hosts, AclPermissionType.ALLOW),
        (denied, denied_hosts, AclPermissionType.DENY),
    ):
        for principal in principals:
            if ":" not in principal:
                raise UsageError(f"{principal}: a principal is TYPE:NAME, as User:anna")
            for resource, operation in wishes:
                for host in hosts or [WILDCARD]:
                    yield AclRule(resource, principal, host, operation, permission)


def _pattern(pattern: ResourcePattern, resource: Resource) -> PatternType:
    if pattern not in (ResourcePattern.LITERAL, ResourcePattern.PREFIXED):
        raise UsageError(f"{pattern.value}: an entry's pattern is literal or prefixed")
    # Of the cluster there is one: a prefix of its name would mean nothing.
    return PatternType.LITERAL if resource.kind is AclResourceType.CLUSTER else PatternType[pattern.name]


def _filter(
    resource: Resource | None, pattern: ResourcePattern, rule: AclRule | None = None
) -> dict[str, Any]:
    return {
        "resource_type_filter": int(AclResourceType.ANY if resource is None else resource.kind),
        "resource_name_filter": None if resource is None else resource.name,
        "pattern_type_filter": int(PatternType[pattern.name]),
        "principal_filter": None if rule is None else rule.principal,
        "host_filter": None if rule is None else rule.host,
        "operation": int(AclOperation.ANY if rule is None else rule.operation),
        "permission_type": int(AclPermissionType.ANY if rule is None else rule.permission),
    }


def _rows(resource: Message, entries: Iterable[Message]) -> Iterator[tuple[str, ...]]:
    for each in entries:
        yield (
            each.principal,
            each.host,
            AclPermissionType(each.permission_type).name.lower(),
            AclOperation(each.operation).name,
            AclResourceType(resource.resource_type).name.lower(),
            PatternType(resource.pattern_type).name.lower(),
            resource.resource_name,
        )
