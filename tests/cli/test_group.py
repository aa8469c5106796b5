"""`kraft group` on real nodes: it shows what members, commits and logs are; what it changes is obeyed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner, Result

from kraft.cli.errors import CliError
from kraft.cli.main import cli
from kraft.local.local_cluster import LocalCluster
from tests.cli.shell import Shell
from tests.support.clients.rdkafka import QUIET, send
from tests.support.waiting import wait_until

PER_PARTITION = 10


class Prompt:
    """`kraft COMMAND` in this process, which spares a fifth of a second for each."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, [*arguments, "--bootstrap-server", self._bootstrap])

    def __call__(self, *arguments: str) -> str:
        """What it printed; it must succeed."""
        done = self.run(*arguments)
        assert done.exit_code == 0, done.exception
        return done.stdout

    def refused(self, *arguments: str) -> str:
        """The sentence it refused with."""
        done = self.run(*arguments)
        assert isinstance(done.exception, CliError)
        assert done.stdout == ""
        return str(done.exception)


@pytest.fixture
def shell(shared_cluster: LocalCluster) -> Prompt:
    return Prompt(shared_cluster.bootstrap)


@pytest.fixture
def filled(shared_cluster: LocalCluster) -> Callable[[str], None]:
    """A topic of two partitions with ten records each, of the times 1000, 2000, …, 10000."""

    def fill(topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": shared_cluster.bootstrap, **QUIET})
        admin.create_topics([NewTopic(topic, 2, 3)])[topic].result()
        send(
            shared_cluster.bootstrap,
            topic,
            (
                {"value": b"x", "partition": partition, "timestamp": 1000 * n}
                for partition in (0, 1)
                for n in range(1, PER_PARTITION + 1)
            ),
        )

    return fill


def commit(cluster: LocalCluster, group: str, topic: str, *offsets: int) -> None:
    with closing(Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, **QUIET})) as consumer:
        places = [TopicPartition(topic, n, offset) for n, offset in enumerate(offsets)]
        consumer.commit(offsets=places, asynchronous=False)


@contextmanager
def member(cluster: LocalCluster, group: str, topic: str) -> Iterator[Consumer]:
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "client.id": "reader", **QUIET}
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        wait_until(lambda: (consumer.poll(0.1), consumer.assignment())[1], "an assignment")
        yield consumer


def cells(table: str) -> list[list[str]]:
    _, *rows = table.splitlines()
    return [row.split() for row in rows]


@pytest.mark.row("G5", "U2")
def test_a_group_with_a_member(
    shell: Prompt, shared_cluster: LocalCluster, filled: Callable[[str], None]
) -> None:
    topic = group = "cli-active"
    filled(topic)
    commit(shared_cluster, group, topic, 4)
    with member(shared_cluster, group, topic):
        header, *rows = Shell(shared_cluster.bootstrap)("group", "describe", group).splitlines()
        assert header.split() == [
            "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG",
            "CONSUMER-ID", "HOST", "CLIENT-ID",
        ]  # fmt: skip
        owner = rows[0].split()[6]
        assert owner.startswith("reader-")
        assert [row.split() for row in rows] == [
            [group, topic, "0", "4", "10", "6", owner, "/127.0.0.1", "reader"],
            [group, topic, "1", "-", "10", "-", owner, "/127.0.0.1", "reader"],
        ]
        assert cells(shell("group", "describe", group, "--members")) == [
            [group, owner, "-", "/127.0.0.1", "reader", "2", f"{topic}(0,1)"]
        ]
        (state,) = cells(shell("group", "describe", group, "--state"))
        assert (state[0], state[3:]) == (group, ["classic", "range", "Stable", "1"])
        assert [group, "classic", "Stable"] in cells(shell("group", "list", "--state", "stable"))
        assert group in shell.refused("group", "reset-offsets", group, "--topic", topic, "--to-earliest")
        assert shell.refused("group", "delete", group).startswith(f"{group}: consumers are in the group")
        refusal = shell.refused("group", "delete-offsets", group, "--topic", topic)
        assert refusal.startswith(f"{group}: the group reads {topic}")
    wait_until(lambda: [group, "classic", "Empty"] in cells(shell("group", "list")), "it is empty")


@pytest.mark.row("G5", "U2")
def test_offsets_are_moved_and_the_next_reader_starts_there(
    shell: Prompt, shared_cluster: LocalCluster, filled: Callable[[str], None], tmp_path: Path
) -> None:
    topic = group = "cli-reset"
    filled(topic)
    commit(shared_cluster, group, topic, 4, 5)

    def plan(*options: str) -> list[int]:
        done = shell.run("group", "reset-offsets", group, "--topic", topic, *options)
        assert done.exit_code == 0, done.exception
        assert ("--execute" in options) == (done.stderr == "")
        return [int(row[4]) for row in cells(done.stdout)]

    assert plan("--to-earliest") == [0, 0]
    assert plan("--to-latest") == [10, 10]
    assert plan("--to-current") == [4, 5]
    assert plan("--to-offset", "7") == [7, 7]
    assert plan("--shift-by", "-2") == [2, 3]
    assert plan("--to-datetime", "1970-01-01T00:00:03") == [2, 2]
    assert plan("--by-duration", "PT1H") == [10, 10]
    assert [row[3] for row in cells(shell("group", "describe", group, "--state"))] == ["classic"]
    exported = shell.run(
        "group", "reset-offsets", group, "--all-topics", "--shift-by", "1", "--export"
    ).stdout
    assert exported == f"{topic},0,5\n{topic},1,6\n"
    assert [row[3:6] for row in cells(shell("group", "describe", group))] == [
        ["4", "10", "6"], ["5", "10", "5"],
    ]  # fmt: skip
    (tmp_path / "plan.csv").write_text(exported)
    moved = shell("group", "reset-offsets", group, "--from-file", str(tmp_path / "plan.csv"), "--execute")
    assert [row[3:] for row in cells(moved)] == [["4", "5"], ["5", "6"]]
    assert shell("consume", topic, "-n", "9", "-g", group).count("\n") == 9
    assert [row[5] for row in cells(shell("group", "describe", group))] == ["0", "0"]


@pytest.mark.row("G5", "U2")
def test_groups_and_offsets_are_deleted(
    shell: Prompt, shared_cluster: LocalCluster, filled: Callable[[str], None]
) -> None:
    topic = group = "cli-delete"
    filled(topic)
    commit(shared_cluster, group, topic, 4, 5)
    assert shell("group", "delete-offsets", group, "--topic", f"{topic}:1") == (
        f"Deleted the offset of {group} in {topic}-1.\n"
    )
    assert [row[2:4] for row in cells(shell("group", "describe", group))] == [["0", "4"]]
    assert shell("group", "delete", group) == f"Deleted group {group}.\n"
    gone = f"{group}: there is no such group; `kraft group list` shows those that are"
    assert shell.refused("group", "describe", group) == gone
    assert shell.refused("group", "delete", group) == gone


def test_what_group_refuses(shell: Prompt, filled: Callable[[str], None]) -> None:
    filled("cli-refusals")
    reset = ("group", "reset-offsets", "nobody")
    assert "Give one of --to-earliest" in shell.refused(*reset, "--all-topics")
    assert "Give one of --to-earliest" in shell.refused(*reset, "--to-latest", "--to-offset", "3")
    assert shell.refused(*reset, "--to-latest") == "which topics? Give --topic TOPIC[:0,2] or --all-topics"
    assert shell.refused(*reset, "--topic", "nothere", "--to-latest") == "nothere: there is no such topic"
    assert "there is no partition 2" in shell.refused(*reset, "--topic", "cli-refusals:2", "--to-latest")
    assert "nothing is committed" in shell.refused(*reset, "--topic", "cli-refusals", "--shift-by", "1")
    assert "P1DT2H3M4S" in shell.refused(*reset, "--topic", "cli-refusals", "--by-duration", "1 h")
    assert "two views" in shell.refused("group", "describe", "nobody", "--members", "--state")
