"""What the commands refuse, against a running cluster: one plain sentence, a non-zero exit, no traceback."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kraft.local.local_cluster import LocalCluster
from tests.support.clients.rdkafka import read, send
from tests.support.nodes.forks import run_kraft
from tests.support.waiting import wait_until

TOPIC = "refusals"


@pytest.fixture(scope="module")
def bootstrap(shared_cluster: LocalCluster) -> str:
    """With a topic of three partitions."""
    done = run(shared_cluster.bootstrap, "topic", "create", TOPIC, "--partitions", "3")
    assert done.returncode == 0, done.stderr
    return shared_cluster.bootstrap


def run(bootstrap: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    where = ["--bootstrap-server", bootstrap] if bootstrap else []
    return run_kraft(*arguments, *where, stdin=stdin)


@pytest.mark.row("U2")
@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ("topic create other --replica-assignment 1:x", 2, "1:x: an assignment is written as 1:2,2:3"),
        ("topic create other --config no.such=1", 1, "Unknown topic config name: no.such"),
        ("topic create other --config retention.ms=soon", 1, "Invalid value soon"),
        ("topic create other --partitions 0", 1, "(INVALID_PARTITIONS)"),
        (f"topic alter {TOPIC}", 2, "nothing to alter"),
        (f"topic alter {TOPIC} --partitions 2", 1, "2 would not be an increase. (INVALID_PARTITIONS)"),
        (f"config set topic {TOPIC}", 2, "nothing to set: give KEY=VALUE or --delete KEY"),
        (f"config set topic {TOPIC} retention.ms", 2, "retention.ms: a configuration is given as KEY=VALUE"),
        (
            "config set broker 9 log.retention.ms=1",
            1,
            "9: no such broker is up; those that are up are 1, 2, 3",
        ),
        ("config set broker 1 node.id=4", 1, "Cannot update these configs dynamically: node.id"),
        ("config get broker 1 no.such", 1, "no.such: not a configuration of a broker"),
        ("elect-leaders --partition 0", 2, "--partition needs --topic"),
        (f"consume {TOPIC} -p 7 -e", 1, f"{TOPIC}: there is no partition 7; it has 3"),
        (f"consume {TOPIC} -o x", 2, "--offset x: beginning, end, a number, -N or @MS"),
        (f"consume {TOPIC} -X no.such=1", 2, 'No such configuration property: "no.such"'),
        (f"produce {TOPIC} -p 7", 1, f"{TOPIC}: there is no partition 7; it has 3"),
        (f"produce {TOPIC} -z best", 2, 'Invalid value "best"'),
        ("perf produce nothere -n 1", 1, "nothere: there is no such topic"),
    ],
)
def test_one_plain_sentence(bootstrap: str, arguments: str, code: int, sentence: str) -> None:
    done = run(bootstrap, *arguments.split(), stdin="line\n")
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("kraft: ")
    assert sentence in done.stderr


@pytest.mark.row("Q8")
@pytest.mark.parametrize("command", ["quorum status", "metadata dump", "topic list"])
def test_an_address_that_is_none(command: str) -> None:
    done = run("nowhere", *command.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "kraft: nowhere: a bootstrap server is HOST:PORT\n"


@pytest.mark.row("L2")
@pytest.mark.parametrize("command", ["log", "metadata"])
def test_a_file_of_something_else(tmp_path: Path, command: str) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not one of ours\n" * 100)
    done = run("", command, "dump", str(file))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert str(file) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bad_line_does_not_lose_those_before_it(bootstrap: str) -> None:
    done = run(bootstrap, "produce", TOPIC, "-K", ":", "-p", "0", stdin="k:sent\nno key here\nk:not sent\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "kraft: line 2 without ':' has no key; the 1 before it were sent\n"
    send(bootstrap, TOPIC, [{"value": "next", "partition": 0}])
    assert [message.value() for message in read(bootstrap, TOPIC, 2)] == [b"sent", b"next"]


@pytest.mark.row("U2")
def test_what_is_set_for_all_brokers(bootstrap: str) -> None:
    """librdkafka refuses a resource without a name; the command does not."""
    key = "log.cleaner.min.compaction.lag.ms"

    def get() -> list[str]:
        done = run(bootstrap, "config", "get", "broker", "")
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith(key)]

    assert run(bootstrap, "config", "set", "broker", "", f"{key}=7").returncode == 0
    (line,) = wait_until(get, "it is set")
    assert line.split() == [key, "7", "DYNAMIC_DEFAULT_BROKER_CONFIG", "no"]
    refused = run(bootstrap, "config", "set", "broker", "", f"{key}=long")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("kraft: INVALID_REQUEST: Invalid value long")
    assert run(bootstrap, "config", "set", "broker", "", "--delete", key).returncode == 0
    wait_until(lambda: not get(), "it is the default again")
