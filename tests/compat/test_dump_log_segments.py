"""Apache Kafka's own tools on our files, and ours on Apache Kafka's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from uuid import UUID

import pytest

from data_plane.log.config import LogConfig
from data_plane.log.dump import dump, verify
from data_plane.log.log import UnifiedLog
from data_plane.log.validation import AppendOrigin
from kraft.storage.meta_properties import read_meta_properties, write_meta_properties
from metadata_quorum.foundation.batch import Record, encode_batch, encode_end_txn_marker
from metadata_quorum.foundation.disk import OsDisk
from metadata_quorum.foundation.uuids import parse_uuid
from tests.support.kafka.kafka_tools import JVM
from tests.support.logs import NOW_MS, open_log
from tests.support.may_block import MAY_BLOCK

pytestmark = pytest.mark.kafka

CONFIG = LogConfig(segment_bytes=6000, index_interval_bytes=500)
DUMPED = (".log", ".index", ".timeindex", ".snapshot")


def run_tool(jars: Path, directory: Path, *command: str) -> list[str]:
    """A tool's standard output, run beside the files so that it prints bare names."""
    java = ("java", *JVM, "-cp", f"{jars}/*", *command)
    done = subprocess.run(java, cwd=directory, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def fill(log: UnifiedLog) -> None:
    """Every codec, keys, headers, nulls, idempotent and transactional producers, several epochs."""
    sequence = 0
    for i in range(60):
        records = [
            Record(-1, NOW_MS + 10 * i, b"key", b"v" * 50, (("h1", b"x"), ("h2", None))),
            Record(-1, NOW_MS + 10 * i + 5, None, "grüße".encode()),
            Record(-1, NOW_MS + 10 * i - 3, b"k", None),
        ]
        producer = {"producer_id": 7, "producer_epoch": 1, "base_sequence": sequence} if i % 2 else {}
        sequence += 3 if producer else 0
        data = bytearray(encode_batch(records, compression=i % 5, **producer))
        log.append_as_leader(data, leader_epoch=i // 20, now_ms=NOW_MS)
    for sequence in range(2):
        records = [Record(-1, NOW_MS + 900, b"a", b"b")]
        data = encode_batch(
            records, producer_id=8, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        log.append_as_leader(bytearray(data), leader_epoch=5, now_ms=NOW_MS)
        if sequence == 0:
            marker = encode_end_txn_marker(
                commit=True, coordinator_epoch=4, producer_id=8, producer_epoch=0, timestamp=NOW_MS + 950
            )
            log.append_as_leader(
                bytearray(marker), leader_epoch=5, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR
            )


@pytest.fixture
def directory(tmp_path) -> Path:
    log = open_log(tmp_path / "flights-0", CONFIG, topic_id=UUID(int=77 << 64))
    fill(log)
    log.close_clean(MAY_BLOCK)
    return tmp_path / "flights-0"


@pytest.mark.row("L1")
@pytest.mark.row("L2")
def test_both_tools_print_the_same(directory: Path, kafka_jars: Path, monkeypatch):
    names = sorted(name for name in os.listdir(directory) if name.endswith(DUMPED))
    assert len(names) >= 8
    files = ("--files", ",".join(names))
    theirs = run_tool(kafka_jars, directory, "kafka.tools.DumpLogSegments", *files, "--print-data-log")
    monkeypatch.chdir(directory)
    ours = [line for name in names for line in dump(OsDisk(), name, print_records=True)]
    assert ours == theirs


@pytest.mark.row("L1")
def test_apache_kafka_finds_our_indexes_sound(directory: Path, kafka_jars: Path):
    names = sorted(name for name in os.listdir(directory) if name.endswith((".index", ".timeindex")))
    for option in ("--verify-index-only", "--index-sanity-check"):
        tool = ("kafka.tools.DumpLogSegments", "--files", ",".join(names), option)
        printed = run_tool(kafka_jars, directory, *tool)
        complaints = [
            line for line in printed if "Mismatch" in line or "not" in line or "Index offset" in line
        ]
        assert complaints == []


@pytest.mark.row("L1")
def test_files_recovered_by_us_read_the_same(directory: Path, kafka_jars: Path):
    """A crash rebuilds indexes: they must still be Apache Kafka's."""
    before = {path.name: path.read_bytes() for path in directory.glob("*.*index")}
    for path in directory.glob("*.*index"):
        path.unlink()
    open_log(directory, CONFIG).close_clean(MAY_BLOCK)
    assert {path.name: path.read_bytes() for path in directory.glob("*.*index")} == before


@pytest.mark.row("L1")
def test_we_read_what_apache_kafka_formatted(tmp_path, kafka_jars: Path):
    settings = {
        "process.roles": "broker,controller",
        "node.id": "3",
        "controller.quorum.voters": "3@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "log.dirs": str(tmp_path / "data"),
    }
    properties = tmp_path / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    cluster_id = "4L6g3nShT-eMCtK--X86sw"
    format_command = ("format", "-c", str(properties), "-t", cluster_id)
    run_tool(kafka_jars, tmp_path, "kafka.tools.StorageTool", *format_command)

    found = read_meta_properties(OsDisk(), str(tmp_path / "data" / "meta.properties"), MAY_BLOCK)
    assert (found["cluster.id"], found["node.id"], found["version"]) == (cluster_id, "3", "1")
    parse_uuid(found["directory.id"])
    for path in (tmp_path / "data").rglob("*.checkpoint"):
        assert verify(OsDisk(), str(path)) == []


@pytest.mark.row("L1")
def test_apache_kafka_reads_our_meta_properties(tmp_path, kafka_jars: Path):
    data = tmp_path / "data"
    data.mkdir()
    write_meta_properties(
        OsDisk(),
        str(data / "meta.properties"),
        cluster_id="4L6g3nShT-eMCtK--X86sw",
        node_id=3,
        directory_id=UUID("6ba7b810-9dad-41d1-80b4-00c04fd430c8"),
        may_block=MAY_BLOCK,
    )
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker\nnode.id=3\ncontroller.quorum.voters=1@localhost:9093\n"
        f"controller.listener.names=CONTROLLER\nlisteners=PLAINTEXT://localhost:9092\nlog.dirs={data}\n"
    )
    printed = run_tool(kafka_jars, tmp_path, "kafka.tools.StorageTool", "info", "-c", str(properties))
    text = "\n".join(printed)
    assert "cluster.id=4L6g3nShT-eMCtK--X86sw" in text
    assert "node.id=3" in text
