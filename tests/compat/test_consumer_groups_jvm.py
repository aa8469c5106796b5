"""Apache Kafka's tools and groups of the consumer protocol: the console consumer, groups, dump."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from data_plane.coordinator.groups.consumer_records import ConsumerGroupRecordType
from kraft.local.local_cluster import LocalCluster
from metadata_quorum.foundation.batch import Record, encode_batch
from tests.compat.conftest import MakeTopic
from tests.support.clients.rdkafka import consumer, poll, send
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.logs import NOW_MS, open_log
from tests.support.may_block import MAY_BLOCK
from tests.unit.groups.clients import GROUP, ClassicClient, ConsumerClient
from tests.unit.groups.group_driver import GroupDriver
from tests.unit.groups.topics import Topics

pytestmark = [pytest.mark.kafka, pytest.mark.row("G6")]

GROUP_TOOL = "consumer.group.ConsumerGroupCommand"


@pytest.mark.row("U2")
def test_the_java_consumer_and_the_group_tool(
    kafka_jars: Path, shared_cluster: LocalCluster, make_topic: MakeTopic
) -> None:
    tools, topic, group = KafkaTools(kafka_jars, shared_cluster.bootstrap), make_topic(3), "jvm-kip848"
    send(shared_cluster.bootstrap, topic, ({"value": str(n), "partition": n % 3} for n in range(30)))
    read_back = tools(
        "consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", "--max-messages", "30",
        "--consumer-property", "group.protocol=consumer", "--group", group,
    )  # fmt: skip
    assert sorted(map(int, read_back.split())) == list(range(30))
    with consumer(shared_cluster.bootstrap, group_id=group, group_protocol="consumer") as reader:
        reader.subscribe([topic])
        send(shared_cluster.bootstrap, topic, ({"value": "v", "partition": n} for n in range(3)))
        assert len(poll(reader, 3)) == 3
        state = tools(GROUP_TOOL, "--describe", "--group", group, "--state").split()
        assert state[-3:] == ["uniform", "Stable", "1"]
        members = tools(GROUP_TOOL, "--describe", "--group", group, "--members", "--verbose")
        assert f"{topic}:0,1,2" in members
        offsets = tools(GROUP_TOOL, "--describe", "--group", group).splitlines()
        rows = [line.split() for line in offsets if line.startswith(group)]
        assert {int(row[2]): (row[3], row[4]) for row in rows} == dict.fromkeys(range(3), ("10", "11"))
        listed = tools(GROUP_TOOL, "--list", "--type", "consumer", "--state")
        assert any(line.split() == [group, "Consumer", "Stable"] for line in listed.splitlines()), listed


def test_kafkas_dump_tool_reads_the_records(kafka_jars: Path, tmp_path: Path) -> None:
    topics = Topics()
    topics.create("a", 2)
    driver = GroupDriver(view=topics.view)
    classic, static = ClassicClient("c", ("a",)), ConsumerClient("s", ("a",), "i", assignor="range")
    pattern = ConsumerClient("p", regex="a.*")
    for _ in range(6):
        for client in (classic, static, pattern):
            client.beat(driver)
    static.leave(driver, for_now=True)
    pattern.leave(driver)
    driver.advance(50)  # the others' sessions are over
    log = open_log(tmp_path / "__consumer_offsets-0")
    for key, value in driver.log:
        batch = encode_batch([Record(timestamp=NOW_MS, key=key, value=value)])
        log.append_as_leader(bytearray(batch), leader_epoch=0, now_ms=NOW_MS)
    log.close_clean(MAY_BLOCK)
    (segment,) = (tmp_path / "__consumer_offsets-0").glob("*.log")
    printed = KafkaTools(kafka_jars).plain(
        "kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(segment)
    )
    records = [
        line.split(" key: ")[1].split(" payload: ") for line in printed.splitlines() if " key: " in line
    ]
    assert len(records) == len(driver.log)
    kinds = Counter(int(json.loads(key)["type"]) for key, _ in records)
    assert set(kinds) == {2, *ConsumerGroupRecordType}
    buried = Counter(int(json.loads(key)["type"]) for key, value in records if value == "<DELETE>")
    assert buried == {
        2: 1,
        ConsumerGroupRecordType.MEMBER: 3,
        ConsumerGroupRecordType.TARGET: 3,
        ConsumerGroupRecordType.CURRENT: 3,
        ConsumerGroupRecordType.REGEX: 1,
    }
    kept = {key: json.loads(value)["data"] for key, value in records if value != "<DELETE>"}

    def last(kind: ConsumerGroupRecordType, **names: str) -> dict[str, Any]:
        return kept[json.dumps({"type": str(int(kind)), "data": names}, separators=(",", ":"))]

    assert last(ConsumerGroupRecordType.MEMBER, groupId=GROUP, memberId="c1")["classicMemberMetadata"] == {
        "sessionTimeoutMs": 45_000,
        "supportedProtocols": [{"name": "range", "metadata": "AAEAAAABAAFh/////wAAAAA="}],
    }
    found = last(ConsumerGroupRecordType.MEMBER, groupId=GROUP, memberId="s1")
    assert (found["instanceId"], found["serverAssignor"], found["rebalanceTimeoutMs"]) == (
        "i",
        "range",
        60_000,
    )
    (assigned,) = last(ConsumerGroupRecordType.CURRENT, groupId=GROUP, memberId="s1")["assignedPartitions"]
    assert assigned == {"topicId": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": [0]}
    assert last(ConsumerGroupRecordType.CURRENT, groupId=GROUP, memberId="s1")["memberEpoch"] == -2
    assert last(ConsumerGroupRecordType.REGEX, groupId=GROUP, regularExpression="a.*")["topics"] == ["a"]
