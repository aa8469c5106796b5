"""AlterClientQuotas and UpdateFeatures as decisions: what is written, and what is not."""

from __future__ import annotations

from uuid import UUID

import pytest

from metadata_quorum.decisions.client_quotas import alter_client_quotas
from metadata_quorum.decisions.features import update_features
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import BrokerRegistration, FeatureRange
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.records import ClientQuotaRecord, FeatureField, FeatureLevelRecord, QuotaEntity
from metadata_quorum.metadata.snapshot import decode_checkpoint, encode_checkpoint
from metadata_quorum.protocol.commands import (
    AlterClientQuotas,
    FeatureUpdate,
    QuotaAlteration,
    QuotaOperation,
    UpdateFeatures,
)
from metadata_quorum.protocol.replies import QuotaResult

USER = (QuotaEntity(entity_type="user", entity_name="u"),)
DEFAULT_USER = (QuotaEntity(entity_type="user"),)
KEY = (("user", "u"),)


def alteration(entity: tuple[QuotaEntity, ...], **values: float | None) -> QuotaAlteration:
    operations = tuple(
        QuotaOperation(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()
    )
    return QuotaAlteration(entity=entity, operations=operations)


def altered(image: MetadataImage, *alterations: QuotaAlteration) -> tuple[MetadataImage, list[ErrorCode]]:
    decision = alter_client_quotas(image, AlterClientQuotas(alterations=alterations))
    delta = MetadataDelta(image)
    for record in decision.records:
        delta.replay(record)
    assert isinstance(decision.reply, tuple)
    return delta.apply(), [result.error for result in decision.reply]


@pytest.mark.row("R12")
def test_only_what_changes_is_written() -> None:
    image, errors = altered(EMPTY_IMAGE, alteration(USER, producer_byte_rate=5, consumer_byte_rate=6))
    assert errors == [ErrorCode.NONE]
    command = AlterClientQuotas(
        alterations=(
            alteration(USER, producer_byte_rate=5, consumer_byte_rate=None, request_percentage=None),
        )
    )
    assert alter_client_quotas(image, command).records == [
        ClientQuotaRecord(entity=USER, key="consumer_byte_rate", value=0.0, remove=True)
    ]


def test_an_entity_is_taken_whole_or_not_at_all() -> None:
    image, errors = altered(
        EMPTY_IMAGE,
        alteration(USER, producer_byte_rate=5, no_such_quota=1),
        alteration(DEFAULT_USER, request_percentage=1.5),
    )
    assert errors == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert image.quotas == {(("user", None),): {"request_percentage": 1.5}}


def test_who_is_named_twice_gets_nothing() -> None:
    twice = (alteration(USER, producer_byte_rate=5), alteration(USER, producer_byte_rate=6))
    decision = alter_client_quotas(EMPTY_IMAGE, AlterClientQuotas(alterations=twice))
    assert decision.records == []
    message = "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})"
    assert decision.reply == (QuotaResult(KEY, ErrorCode.INVALID_REQUEST, message),)


def test_quotas_are_in_snapshots_and_leave_nothing_behind() -> None:
    image, _ = altered(EMPTY_IMAGE, alteration(USER, producer_byte_rate=5))
    assert decode_checkpoint(encode_checkpoint(image), 0, 0).quotas == {KEY: {"producer_byte_rate": 5.0}}
    gone, _ = altered(image, alteration(USER, producer_byte_rate=None))
    assert gone.quotas == {}


SUPPORTED = (FeatureField(name="x", min_supported_version=0, max_supported_version=3),)


def update(image: MetadataImage, level: int, upgrade_type: int = 1) -> list[FeatureLevelRecord]:
    updates = (FeatureUpdate(name="x", level=level, upgrade_type=upgrade_type),)
    command = UpdateFeatures(controller_id=1, updates=updates, supported=SUPPORTED)
    records = update_features(image, command).records
    return [record for record in records if isinstance(record, FeatureLevelRecord)]


def test_every_broker_must_run_a_new_level() -> None:
    old = BrokerRegistration(2, 10, UUID(int=2), features=(FeatureRange("x", 0, 1),))
    silent = BrokerRegistration(3, 11, UUID(int=3))
    image = MetadataImage(brokers={2: old, 3: silent})
    assert update(image, 1) == [FeatureLevelRecord(name="x", feature_level=1)]
    with pytest.raises(BrokerError, match="Broker 2 only supports versions 0-1") as refused:
        update(image, 2)
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION


def test_the_level_that_is_there_is_not_written_again() -> None:
    image = MetadataImage(features={"x": 2})
    assert update(image, 2) == []
    assert update(image, 0, upgrade_type=2) == [FeatureLevelRecord(name="x", feature_level=0)]
