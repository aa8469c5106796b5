"""AlterClientQuotas: entities and values are checked, then become ClientQuotaRecords.

Each entity is taken whole or not at all. Whether the host of an `ip` entity can be resolved is not for
here to know: the api handler checks before it proposes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from metadata_quorum.decisions.decision import Decision
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.primitives import INT_MAX, LONG_MAX
from metadata_quorum.foundation.quota_types import ENTITY_TYPES, IP, QuotaEntityKey, QuotaType
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import ClientQuotaRecord, MetadataRecord, QuotaEntity
from metadata_quorum.protocol.commands import AlterClientQuotas, QuotaAlteration
from metadata_quorum.protocol.replies import QuotaResult

MAX_FRACTION: Final = 1e-6
"""A whole number may be off by so much."""

_WHOLE_UP_TO: Final[Mapping[str, int]] = {
    QuotaType.PRODUCED_BYTES: LONG_MAX,
    QuotaType.FETCHED_BYTES: LONG_MAX,
    QuotaType.CONNECTIONS: INT_MAX,
}
_OF_ADDRESSES: Final = frozenset[str]({QuotaType.CONNECTIONS})
_OF_CLIENTS: Final = frozenset[str](QuotaType) - _OF_ADDRESSES
_NOTHING: Final[Mapping[str, float]] = MappingProxyType({})


def alter_client_quotas(image: MetadataImage, command: AlterClientQuotas) -> Decision:
    """Each entity is decided by itself."""
    decision = Decision()
    results = []
    named: dict[QuotaEntityKey, list[QuotaAlteration]] = {}
    for each in command.alterations:
        named.setdefault(entity_key(each), []).append(each)
    for key, (alteration, *others) in named.items():
        try:
            if others:
                raise _invalid(f"Ignoring duplicate entity {_entity_text(key)}")
            decision.records += _altered(image, alteration)
            results.append(QuotaResult(key))
        except BrokerError as e:
            results.append(QuotaResult(key, e.code, e.message))
    decision.reply = tuple(results)
    return decision


def entity_key(alteration: QuotaAlteration) -> QuotaEntityKey:
    """The coordinates in the order in which the image has them."""
    pairs = ((each.entity_type, each.entity_name) for each in alteration.entity)
    return tuple(sorted(pairs, key=lambda pair: (pair[0], pair[1] or "")))


def _altered(image: MetadataImage, alteration: QuotaAlteration) -> list[MetadataRecord]:
    allowed = _keys_of(alteration.entity)
    present = image.quotas.get(entity_key(alteration), _NOTHING)
    changed: list[MetadataRecord] = []
    seen: set[str] = set()
    for operation in alteration.operations:
        key, value = operation.key, operation.value
        if key in seen:
            raise _invalid(f"Duplicate quota key {key} not updating quota for this entity")
        seen.add(key)
        if operation.remove:
            if key in present:
                changed.append(ClientQuotaRecord(entity=alteration.entity, key=key, value=0.0, remove=True))
            continue
        _check_value(allowed, key, value)
        if present.get(key) != value:
            changed.append(ClientQuotaRecord(entity=alteration.entity, key=key, value=value))
    return changed


def _keys_of(entity: tuple[QuotaEntity, ...]) -> frozenset[str]:
    """The kinds of quota that such an entity may have."""
    kinds = Counter(each.entity_type for each in entity)
    for each in entity:
        if kinds[each.entity_type] > 1:
            raise _invalid(f"Invalid client quota entity, duplicate entity entry {each.entity_type}")
        if each.entity_type not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {each.entity_type}")
        if each.entity_name == "":
            raise _invalid(f"Empty {each.entity_type} not supported")
    if not kinds:
        raise _invalid("Invalid empty client quota entity")
    if IP not in kinds:
        return _OF_CLIENTS
    if len(kinds) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )
    return _OF_ADDRESSES


def _check_value(allowed: frozenset[str], key: str, value: float) -> None:
    if key not in allowed:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0.0:
        raise _invalid(f"Quota {key} must be greater than 0")
    most = _WHOLE_UP_TO.get(key)
    if most is None:
        return
    if value > most:
        raise _invalid(
            f"Proposed value for {key} is too large for {'an INT' if most == INT_MAX else 'a LONG'}."
        )
    if value % 1.0 > MAX_FRACTION:
        raise _invalid(f"{key} cannot be a fractional value.")


def _entity_text(key: QuotaEntityKey) -> str:
    names = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in key)
    return f"ClientQuotaEntity(entries={{{names}}})"


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)
