"""Completion as shells ask for it: commands, and names of what the cluster has."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.local.local_cluster import LocalCluster
from tests.support.clients.rdkafka import QUIET
from tests.support.waiting import wait_until


def complete(*words: str) -> list[str]:
    """What bash would be offered for the last word."""
    asked = {
        "_KRAFT_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(("kraft", *words)),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'kraft'; from kraft.__main__ import main; main()"],
        env=os.environ | asked, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.row("U6")
def test_commands_topics_and_groups(shared_cluster: LocalCluster) -> None:
    admin = AdminClient({"bootstrap.servers": shared_cluster.bootstrap, **QUIET})
    for made in admin.create_topics([NewTopic(f"complete-{n}", 1, 3) for n in (1, 2)]).values():
        made.result()
    reader = Consumer({"bootstrap.servers": shared_cluster.bootstrap, "group.id": "complete-g", **QUIET})
    reader.commit(offsets=[TopicPartition("complete-1", 0, 0)], asynchronous=False)
    reader.close()
    host, _, port = shared_cluster.bootstrap.split(",")[0].rpartition(":")
    assert complete("gro") == ["group"]
    assert "reset-offsets" in complete("group", "re")
    # A busy machine may take longer to answer than a shell is made to wait: then there are no names.
    line = ("topic", "describe", "--bootstrap-server", f"{host}:{port}", "complete-")
    wait_until(lambda: complete(*line) == ["complete-1", "complete-2"], "names of topics")
    line = ("group", "describe", "-b", host, ":", port, "complete-")
    wait_until(lambda: complete(*line) == ["complete-g"], "the name of a group")


def test_where_nobody_answers_there_are_no_names(free_ports) -> None:
    (port,) = free_ports(1)
    assert complete("topic", "describe", "-b", f"127.0.0.1:{port}", "a") == []
