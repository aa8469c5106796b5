"""DescribeConfigs of very many topics, most of which have no settings of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

import pytest

from kraft.api.configs import ConfigSource, handle_describe
from metadata_quorum.foundation.model import PartitionRegistration, ResourceType
from metadata_quorum.metadata.image import MetadataImage, TopicImage
from tests.support.contexts import node_context
from tests.support.node_config import config, mapped

pytestmark = pytest.mark.row("P7")

PARTITIONS: Final = {0: PartitionRegistration((1,), (1,), 1, 0, 0)}
KEY: Final = "retention.ms"


def described(*, synonyms: bool, keys: list[str] | None = None) -> dict[str, Mapping[str, Mapping[str, Any]]]:
    names = ("own", "usual", "usual-too")
    image = MetadataImage(
        topics_by_name={name: TopicImage(name, UUID(int=n), PARTITIONS) for n, name in enumerate(names, 1)},
        configs={(ResourceType.TOPIC, "own"): {KEY: "7"}},
    )
    # fmt: off
    request: Any = SimpleNamespace(
        resources=[
            SimpleNamespace(resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=keys)
            for name in names
        ],
        include_synonyms=synonyms, include_documentation=True,
    )
    # fmt: on

    async def ask() -> Any:
        settings = config(listener_security_protocol_map=mapped("PLAINTEXT"))
        node = node_context(asyncio.get_running_loop(), config=settings, image=image)
        return await handle_describe(node, None, request)  # type: ignore[arg-type]

    return {
        each["resource_name"]: {entry["name"]: entry for entry in each["configs"]}
        for each in asyncio.run(ask())["results"]
    }


def test_a_setting_that_topics_share_is_one_object() -> None:
    """Of 50,000 topics they took 800 MB, and 15 seconds of the loop."""
    topics = described(synonyms=True)
    for name, entry in topics["usual"].items():
        assert topics["usual-too"][name] is entry
        assert name == KEY or topics["own"][name] is entry


@pytest.mark.parametrize("synonyms", [False, True])
def test_a_topic_with_a_setting_of_its_own_has_it_and_the_usual_ones(synonyms: bool) -> None:
    topics = described(synonyms=synonyms)
    assert topics["own"].keys() == topics["usual"].keys()
    own, usual = topics["own"][KEY], topics["usual"][KEY]
    assert (own["value"], own["config_source"]) == ("7", ConfigSource.TOPIC)
    assert (usual["value"], usual["config_source"]) == ("604800000", ConfigSource.DEFAULT)
    assert [each["source"] for each in own["synonyms"]] == ([ConfigSource.TOPIC] if synonyms else [])
    assert all(synonyms or not each["synonyms"] for each in topics["own"].values())
    assert all(each["documentation"] for each in topics["own"].values())


def test_of_the_usual_ones_those_are_told_that_are_asked_for() -> None:
    assert {name: list(entries) for name, entries in described(synonyms=True, keys=[KEY]).items()} == {
        name: [KEY] for name in ("own", "usual", "usual-too")
    }


CHAINS: Final = {
    (ResourceType.TOPIC, "usual", "retention.ms"): [],
    (ResourceType.TOPIC, "usual", "cleanup.policy"): [("log.cleanup.policy", ConfigSource.DEFAULT)],
    (ResourceType.TOPIC, "usual", "local.retention.ms"): [("log.local.retention.ms", ConfigSource.DEFAULT)],
    (ResourceType.TOPIC, "usual", "remote.storage.enable"): [],
    (ResourceType.TOPIC, "usual", "leader.replication.throttled.replicas"): [],
    (ResourceType.BROKER, "", "min.insync.replicas"): [
        ("min.insync.replicas", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    ],
    (ResourceType.GROUP, "g", "consumer.session.timeout.ms"): [
        ("consumer.session.timeout.ms", ConfigSource.GROUP)
    ],
    (ResourceType.GROUP, "g", "consumer.heartbeat.interval.ms"): [
        ("consumer.heartbeat.interval.ms", ConfigSource.DEFAULT)
    ],
}


@pytest.mark.parametrize(("kind", "name", "key"), CHAINS)
def test_what_stands_behind_a_setting_is_what_apache_kafka_tells(
    kind: ResourceType, name: str, key: str
) -> None:
    image = MetadataImage(
        topics_by_name={"usual": TopicImage("usual", UUID(int=1), PARTITIONS)},
        configs={
            (ResourceType.BROKER, ""): {"min.insync.replicas": "2"},
            (ResourceType.GROUP, "g"): {"consumer.session.timeout.ms": "50000"},
        },
    )
    wanted = SimpleNamespace(resource_type=kind, resource_name=name, configuration_keys=[key])
    request: Any = SimpleNamespace(resources=[wanted], include_synonyms=True, include_documentation=False)

    async def ask() -> Any:
        settings = config(listener_security_protocol_map=mapped("PLAINTEXT"))
        node = node_context(asyncio.get_running_loop(), config=settings, image=image)
        return await handle_describe(node, None, request)  # type: ignore[arg-type]

    ((entry,),) = (each["configs"] for each in asyncio.run(ask())["results"])
    assert [(each["name"], each["source"]) for each in entry["synonyms"]] == CHAINS[kind, name, key]
