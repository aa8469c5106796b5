"""What commands say where nodes are dead: what is known, from whom, what is missing; and they say it soon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from kraft.cli.confluent_client import BOOTSTRAP_VARIABLE, PATIENCE_S
from kraft.local.free_ports import HOST
from kraft.local.local_cluster import LocalCluster
from tests.cli.shell import Shell
from tests.support.nodes.cluster import make_whole
from tests.support.nodes.forks import run_kraft
from tests.support.waiting import wait_until

TOPIC = "remembered"


@pytest.fixture(scope="module")
def survivor(shared_cluster: LocalCluster) -> Iterator[Shell]:
    """Of three nodes only the last is left; the first two bootstrap servers are dead. Commands wait no longer
    than they do for a person: where the machine stands still, the node that is left is taken for silent."""
    Shell(shared_cluster.bootstrap)("topic", "create", TOPIC, "--partitions", "3")
    for node in (1, 2):
        shared_cluster.kill(node)
    yield Shell(shared_cluster.bootstrap, patient=False)
    make_whole(shared_cluster)


def test_quorum_status_lets_each_voter_speak(survivor: Shell, shared_cluster: LocalCluster) -> None:
    last = shared_cluster.nodes[3]

    def told() -> subprocess.CompletedProcess[str] | None:
        """Had it led, it would still believe for a moment that it does. Nobody waits for a leader that there
        is not."""
        began = time.monotonic()
        done = survivor.run("quorum", "status")
        soon = time.monotonic() - began < PATIENCE_S
        speaks = f"{HOST}:{last.controller_port}  says that " in done.stdout
        return done if done.returncode and speaks and soon else None

    done = wait_until(told, "node 3 has no majority, and says so soon")
    assert done.returncode == 1
    header, *rows = done.stdout.splitlines()
    assert header.split() == ["node", "controller", "answer"]
    ports = [node.controller_port for node in shared_cluster.nodes.values()]
    assert rows[0] == f"1     127.0.0.1:{ports[0]}  refuses connections"
    assert rows[1] == f"2     127.0.0.1:{ports[1]}  refuses connections"
    assert rows[2].startswith(f"3     127.0.0.1:{ports[2]}  says that ")
    assert done.stderr == (
        f"kraft: no leader of the metadata quorum answers broker 3 (127.0.0.1:{last.client_port}); "
        "1 of 3 voters answer us, 2 are needed\n"
    )


def test_the_doctor_finds_the_cause_first(survivor: Shell) -> None:
    def told() -> dict[str, dict[str, str]] | None:
        done = survivor.run("doctor", "--output", "json")
        if not done.stdout:  # the survivor was not heard in time
            return None
        findings = {each["check"]: each for each in json.loads(done.stdout)}
        heard = (
            findings["log dirs"]["found"].startswith("all online")
            and findings["clocks"]["found"] == "1 agree with ours"
            and "bring back 2 of the controllers" in str(findings["metadata quorum"]["what to do"])
        )
        return findings if done.returncode == 1 and heard else None

    findings = wait_until(told, "the doctor hears of the survivor what it can tell")
    assert [*findings][:4] == ["brokers", "registrations", "metadata quorum", "leaders"]
    assert findings["brokers"]["state"] == findings["metadata quorum"]["state"] == "error"


def test_what_the_last_broker_knows_is_reported_and_how_old_it_may_be(
    survivor: Shell, shared_cluster: LocalCluster
) -> None:
    last = shared_cluster.nodes[3].client_port

    def told(*arguments: str) -> subprocess.CompletedProcess[str] | None:
        """A command waits two seconds for what it may say: a busy machine needs more."""
        done = survivor.run(*arguments)
        says = done.stderr.endswith(f"kraft: shown is what broker 3 (127.0.0.1:{last}) knew last\n")
        return done if done.returncode == 0 and says else None

    def known(*arguments: str) -> str:
        done = wait_until(lambda: told(*arguments), "it says how old that may be")
        assert "kraft: the metadata quorum has no leader that answers\n" in done.stderr
        return done.stdout

    wait_until(lambda: survivor.run("quorum", "status").returncode, "node 3 has no majority")
    assert TOPIC in known("topic", "list")
    first, _, *rows = known("topic", "describe", TOPIC).splitlines()
    assert "PartitionCount: 3" in first
    assert [row.split()[0] for row in rows] == ["0", "1", "2"]
    assert "node.id" in known("config", "get", "broker", "3", "node.id")
    assert known("quota", "list").split() == ["entity", "quota", "value"]


def test_what_only_the_dead_know_is_missed_by_name(survivor: Shell, shared_cluster: LocalCluster) -> None:
    def told() -> subprocess.CompletedProcess[str] | None:
        """It may be silent about groups: it waits for followers to take the record of a member that left."""
        done = survivor.run("group", "list")
        return done if done.stdout else None

    done = wait_until(told, "it lists what is known", on_failure=lambda: survivor.run("group", "list"))
    assert done.stdout.split()[:3] == ["GROUP", "TYPE", "STATE"]
    if done.returncode:  # it still lists the one that died last
        missed = done.stderr.splitlines()[-1]  # a slow one says before what keeps it
        assert missed.startswith("kraft: not all is known: broker ")
        assert f"broker 2 (127.0.0.1:{shared_cluster.nodes[2].client_port}) refuses connections" in missed


def test_a_command_that_waits_says_for_whom(survivor: Shell, shared_cluster: LocalCluster) -> None:
    """In the middle of its wait, which is cut short here."""
    command = [sys.executable, "-m", "kraft", "consume", TOPIC, "--exit-at-end", "--from-beginning"]
    environment = os.environ | {BOOTSTRAP_VARIABLE: shared_cluster.bootstrap}

    def told() -> list[str] | None:
        """It asks once, and says the rest only where the survivor is heard in time."""
        printed = []
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
            try:
                assert process.stderr is not None
                for line in process.stderr:
                    printed.append(line)
                    if line.startswith("kraft: no leader that answers: "):
                        return printed
            finally:
                process.kill()
        return None

    printed = wait_until(told, "it says for whom it waits")
    first, second, *_ = (shared_cluster.nodes[node].client_port for node in (1, 2))
    assert any(f"127.0.0.1:{first}" in line and "refuses connections" in line for line in printed)
    assert any(f"127.0.0.1:{second}" in line and "refuses connections" in line for line in printed)
    assert "kraft: the metadata quorum has no leader that answers\n" in printed
    assert TOPIC in printed[-1]


def test_several_that_are_all_dead_are_named(free_ports: Callable[[int], list[int]]) -> None:
    one, other = free_ports(2)
    done = run_kraft("quota", "list", "-b", f"127.0.0.1:{one},127.0.0.1:{other}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"kraft: no broker answers: 127.0.0.1:{one} refuses connections, "
        f"127.0.0.1:{other} refuses connections\n"
    )
