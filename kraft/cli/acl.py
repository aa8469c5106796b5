"""`kraft acl`: who may do what. Options and conveniences are those of kafka-acls.

kraft acl add --allow-principal User:anna --producer --topic flights
kraft acl add --deny-principal User:bert --operation WRITE --topic f --resource-pattern-type prefixed
kraft acl list --topic flights --resource-pattern-type match
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from kraft.cli.confluent_client import DEFAULT_BOOTSTRAP, Bootstrap, first_address
from kraft.cli.errors import Trouble
from kraft.cli.tables import show
from kraft.cli.wire_client import raise_for, request
from metadata_quorum.security.acls import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    WILDCARD,
    AclResource,
    Operation,
    PatternType,
    Permission,
)

if TYPE_CHECKING:
    from kraft.wire.bridge import Message

DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31

app = typer.Typer(no_args_is_help=True)


class Pattern(StrEnum):
    LITERAL = "literal"
    PREFIXED = "prefixed"
    MATCH = "match"
    ANY = "any"


Topics = Annotated[list[str], typer.Option("--topic", help="'*' for all; may be given again.")]
Groups = Annotated[list[str], typer.Option("--group", help="'*' for all.")]
Ids = Annotated[list[str], typer.Option("--transactional-id", help="'*' for all.")]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
PatternOption = Annotated[
    Pattern,
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

    kind: AclResource
    name: str


class Rule(NamedTuple):
    """An entry, but for the type of its pattern."""

    resource: Resource
    principal: str
    host: str
    operation: Operation
    permission: Permission


@app.command("list")
def list_(
    topic: Topics = [],  # noqa: B006
    group: Groups = [],  # noqa: B006
    transactional_id: Ids = [],  # noqa: B006
    cluster: Cluster = False,
    resource_pattern_type: PatternOption = Pattern.ANY,
    principal: Annotated[list[str], typer.Option(metavar="User:NAME", help="Only these.")] = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List entries: all, or those about some resources."""
    resources: list[Resource | None] = [*_resources(topic, group, transactional_id, cluster)]
    rows: dict[tuple[str, ...], None] = {}
    for resource in resources or [None]:
        answer = request(
            first_address(bootstrap), DESCRIBE_ACLS, (1, 3), _filter(resource, resource_pattern_type)
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
    resource_pattern_type: PatternOption = Pattern.LITERAL,
    producer: AsProducer = False,
    consumer: AsConsumer = False,
    idempotent: Idempotent = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Add entries: every principal, on every resource, for every operation named."""
    resources = _resources(topic, group, transactional_id, cluster)
    wishes = _wishes(resources, operation, producer=producer, consumer=consumer, idempotent=idempotent)
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
    for result in request(first_address(bootstrap), CREATE_ACLS, (1, 3), {"creations": creations}).results:
        raise_for(result.error_code, result.error_message or "")


@app.command()
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
    resource_pattern_type: PatternOption = Pattern.LITERAL,
    producer: AsProducer = False,
    consumer: AsConsumer = False,
    idempotent: Idempotent = False,
    force: Annotated[bool, typer.Option("--force", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove entries: those that `add` would add; without a principal, all of the resources named."""
    resources = _resources(topic, group, transactional_id, cluster)
    if allow_principal or deny_principal:
        wishes = _wishes(resources, operation, producer=producer, consumer=consumer, idempotent=idempotent)
        rules = _rules(wishes, allow_principal, allow_host, deny_principal, deny_host)
        filters = [_filter(each.resource, resource_pattern_type, each) for each in rules]
    else:
        if not resources:
            raise Trouble("remove what? Give a principal or a resource")
        filters = [_filter(each, resource_pattern_type) for each in resources]
    if not force and not typer.confirm("Remove what they match?", err=True):
        raise typer.Exit(1)
    rows: list[tuple[str, ...]] = []
    for result in request(first_address(bootstrap), DELETE_ACLS, (1, 3), {"filters": filters}).filter_results:
        raise_for(result.error_code, result.error_message or "")
        rows += [row for each in result.matching_acls for row in _rows(each, [each])]
    show(("principal", "host", "may", "operation", "resource", "pattern", "name"), sorted(set(rows)))


def _resources(
    topics: Iterable[str], groups: Iterable[str], ids: Iterable[str], cluster: bool
) -> list[Resource]:
    found = [Resource(AclResource.TOPIC, name) for name in topics]
    found += [Resource(AclResource.GROUP, name) for name in groups]
    found += [Resource(AclResource.TRANSACTIONAL_ID, name) for name in ids]
    return [*found, Resource(AclResource.CLUSTER, CLUSTER_NAME)] if cluster else found


def _wishes(
    resources: list[Resource], operations: list[str], *, producer: bool, consumer: bool, idempotent: bool
) -> list[tuple[Resource, Operation]]:
    """Which operation on which resource."""
    if not (producer or consumer):
        if not resources:
            raise Trouble("rights to what? Give --topic, --group, --transactional-id or --cluster")
        named = [_operation(name) for name in operations] or [Operation.ALL]
        return [(resource, _fitting(resource, operation)) for resource in resources for operation in named]
    if operations:
        raise Trouble("--operation does not go with --producer or --consumer, which bring their own")
    kinds = {resource.kind for resource in resources}
    if AclResource.TOPIC not in kinds or (consumer and AclResource.GROUP not in kinds):
        raise Trouble("--producer takes a --topic, --consumer a --topic and a --group")
    wanted: dict[AclResource, tuple[Operation, ...]] = {}
    if producer:
        wanted[AclResource.TOPIC] = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
        wanted[AclResource.TRANSACTIONAL_ID] = (Operation.WRITE, Operation.DESCRIBE)
    if consumer:
        topic = (*wanted.get(AclResource.TOPIC, ()), Operation.READ, Operation.DESCRIBE)
        wanted |= {AclResource.TOPIC: tuple(dict.fromkeys(topic)), AclResource.GROUP: (Operation.READ,)}
    wishes = [(each, operation) for each in resources for operation in wanted.get(each.kind, ())]
    if idempotent and producer:
        wishes.append((Resource(AclResource.CLUSTER, CLUSTER_NAME), Operation.IDEMPOTENT_WRITE))
    return wishes


def _operation(name: str) -> Operation:
    wanted = name.replace("-", "_").upper()
    usable = [each.name for each in Operation if each > Operation.ANY]
    if wanted not in usable:
        raise Trouble(f"{name}: no such operation; there are {', '.join(usable)}")
    return Operation[wanted]


def _fitting(resource: Resource, operation: Operation) -> Operation:
    known = OPERATIONS_OF[resource.kind]
    if operation is not Operation.ALL and operation not in known:
        names = ", ".join(each.name for each in known)
        raise Trouble(f"{operation.name}: a {resource.kind.name} knows {names} and ALL")
    return operation


def _rules(
    wishes: list[tuple[Resource, Operation]],
    allowed: list[str],
    allowed_hosts: list[str],
    denied: list[str],
    denied_hosts: list[str],
) -> Iterator[Rule]:
    if not (allowed or denied):
        raise Trouble("whose rights? Give --allow-principal or --deny-principal User:NAME")
    for principals, hosts, permission in (
        (allowed, allowed_hosts, Permission.ALLOW),
        (denied, denied_hosts, Permission.DENY),
    ):
        for principal in principals:
            if ":" not in principal:
                raise Trouble(f"{principal}: a principal is TYPE:NAME, as User:anna")
            for resource, operation in wishes:
                for host in hosts or [WILDCARD]:
                    yield Rule(resource, principal, host, operation, permission)


def _pattern(pattern: Pattern, resource: Resource) -> PatternType:
    if pattern not in (Pattern.LITERAL, Pattern.PREFIXED):
        raise Trouble(f"{pattern.value}: an entry's pattern is literal or prefixed")
    # Of the cluster there is one: a prefix of its name would mean nothing.
    return PatternType.LITERAL if resource.kind is AclResource.CLUSTER else PatternType[pattern.name]


def _filter(resource: Resource | None, pattern: Pattern, rule: Rule | None = None) -> dict[str, Any]:
    return {
        "resource_type_filter": int(AclResource.ANY if resource is None else resource.kind),
        "resource_name_filter": None if resource is None else resource.name,
        "pattern_type_filter": int(PatternType[pattern.name]),
        "principal_filter": None if rule is None else rule.principal,
        "host_filter": None if rule is None else rule.host,
        "operation": int(Operation.ANY if rule is None else rule.operation),
        "permission_type": int(Permission.ANY if rule is None else rule.permission),
    }


def _rows(found: Message, entries: Iterable[Message]) -> Iterator[tuple[str, ...]]:
    for each in entries:
        yield (
            each.principal,
            each.host,
            Permission(each.permission_type).name.lower(),
            Operation(each.operation).name,
            AclResource(found.resource_type).name.lower(),
            PatternType(found.pattern_type).name.lower(),
            found.resource_name,
        )
