"""AlterUserScramCredentials as the quorum judges it, with Kafka's codes."""

from __future__ import annotations

import pytest

from metadata_quorum.decisions.brokers import claim
from metadata_quorum.decisions.configs import incremental_alter_configs
from metadata_quorum.decisions.decision import Decision
from metadata_quorum.decisions.scram import alter_user_scram
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.records import FeatureLevelRecord, UserScramCredentialRecord
from metadata_quorum.protocol.commands import (
    AlterUserScram,
    ClaimLeadership,
    ConfigChange,
    FeatureLevel,
    IncrementalAlterConfigs,
    ScramDeletion,
)
from metadata_quorum.security.scram import decoy_secret_of

pytestmark = pytest.mark.row("U4")


def record(name: str, mechanism: int = 1, iterations: int = 4096) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=name, mechanism=mechanism, salt=b"s", stored_key=b"k", server_key=b"v", iterations=iterations
    )


def after(image: MetadataImage, decision: Decision) -> MetadataImage:
    delta = MetadataDelta(image)
    for each in decision.records:
        delta.replay(each)
    return delta.apply()


ANNA = after(EMPTY_IMAGE, Decision([record("anna")]))


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (AlterUserScram(upsertions=(record(""),)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (AlterUserScram(upsertions=(record("b", iterations=4095),)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (AlterUserScram(upsertions=(record("b", iterations=16385),)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (AlterUserScram(upsertions=(record("b", mechanism=0),)), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (AlterUserScram(upsertions=(record("b"), record("b"))), ErrorCode.DUPLICATE_RESOURCE),
        (AlterUserScram(deletions=(ScramDeletion(name="b", mechanism=1),)), ErrorCode.RESOURCE_NOT_FOUND),
        (AlterUserScram(deletions=(ScramDeletion(name="anna", mechanism=2),)), ErrorCode.RESOURCE_NOT_FOUND),
        (
            AlterUserScram(
                deletions=(ScramDeletion(name="anna", mechanism=1),), upsertions=(record("anna"),)
            ),
            ErrorCode.DUPLICATE_RESOURCE,
        ),
    ],
)
def test_refused(command: AlterUserScram, error: ErrorCode) -> None:
    decision = alter_user_scram(ANNA, command)
    assert [each.error for each in decision.reply] == [error]  # type: ignore[attr-defined]
    assert decision.records == []


def test_each_user_is_taken_whole_or_not_at_all() -> None:
    decision = alter_user_scram(
        ANNA,
        AlterUserScram(
            deletions=(ScramDeletion(name="anna", mechanism=1),),
            upsertions=(record("bert", 1), record("bert", 2), record("carl", 1), record("carl", 9)),
        ),
    )
    results = {each.user: each.error for each in decision.reply}  # type: ignore[attr-defined]
    assert results == {
        "anna": ErrorCode.NONE,
        "bert": ErrorCode.NONE,
        "carl": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    }
    assert set(after(ANNA, decision).scram) == {("bert", 1), ("bert", 2)}


def test_only_the_first_claim_brings_the_bootstrap_users() -> None:
    command = ClaimLeadership(
        leader_id=1,
        voters=(1,),
        bootstrap_features=(FeatureLevel(name="metadata.version", level=27),),
        bootstrap_users=(record("anna"),),
    )
    begun = after(EMPTY_IMAGE, claim(EMPTY_IMAGE, command))
    assert begun.scram == ANNA.scram
    emptied = after(
        begun, alter_user_scram(begun, AlterUserScram(deletions=(ScramDeletion(name="anna", mechanism=1),)))
    )
    assert claim(emptied, command).records == []


def test_the_first_claim_gives_the_cluster_its_secret() -> None:
    """Also a cluster that is older than the secret; and nobody can name what keeps it."""
    first = ClaimLeadership(
        leader_id=1, voters=(1,), bootstrap_features=(FeatureLevel(name="metadata.version", level=27),),
        decoy_secret="one",
    )  # fmt: skip
    decision = claim(EMPTY_IMAGE, first)
    assert decision.records[0] == FeatureLevelRecord(name="metadata.version", feature_level=27)
    image = after(EMPTY_IMAGE, decision)
    assert decoy_secret_of(image) == b"one"
    second = ClaimLeadership(leader_id=2, voters=(1,), decoy_secret="two")
    assert claim(image, second).records == []
    assert decoy_secret_of(after(ANNA, claim(ANNA, second))) == b"two"
    [(kind, name)] = [each for each in image.configs if "secret" in repr(image.configs[each])]
    change = IncrementalAlterConfigs(
        changes=(ConfigChange(resource_type=kind, resource_name=name, operations=()),)
    )
    [result] = incremental_alter_configs(image, change).reply  # type: ignore[attr-defined]
    assert result.error is ErrorCode.INVALID_REQUEST
