"""`kraft quota` on real nodes."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from kraft.cli.main import cli
from kraft.local.local_cluster import LocalCluster
from tests.support.waiting import wait_until

MINE = ("--user", "cli-user")


@pytest.mark.row("R12", "U2")
def test_quotas_are_set_listed_and_deleted(shared_cluster: LocalCluster) -> None:
    def run(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["quota", *arguments, "-b", shared_cluster.bootstrap])
        return str(done.exception) if done.exception is not None else done.output

    def listed() -> list[list[str]]:
        lines = run("list", *MINE).splitlines()[1:]
        return [[word.strip() for word in line.split("  ") if word.strip()] for line in lines]

    assert run("set", "producer_byte_rate=1") == "whose quota? Give --user, --client-id, both, or --ip"
    assert run("set", "producer_byte_rate=much", *MINE) == "producer_byte_rate=much: a quota is a number"
    assert "Invalid configuration key speed" in run("set", "speed=1", *MINE)
    assert run("delete", *MINE) == "user cli-user: there is no quota"
    two = ("producer_byte_rate=9000000", "request_percentage=50.5")
    assert run("set", *two, *MINE) == f"Set {', '.join(two)} for user cli-user.\n"
    assert run("set", "consumer_byte_rate=8000000", *MINE, "--client-id", "").endswith("(default).\n")
    wait_until(lambda: len(listed()) == 3, "the node that is asked knows them")
    assert listed() == [
        ["user cli-user", "producer_byte_rate", "9000000"],
        ["user cli-user", "request_percentage", "50.5"],
        ["user cli-user, client-id (default)", "consumer_byte_rate", "8000000"],
    ]
    assert run("delete", "request_percentage", *MINE) == "Deleted request_percentage of user cli-user.\n"
    assert run("delete", *MINE, "--client-id", "").startswith("Deleted consumer_byte_rate of ")
    wait_until(lambda: listed() == [["user cli-user", "producer_byte_rate", "9000000"]], "two are gone")
    assert run("delete", *MINE).startswith("Deleted producer_byte_rate of ")
    wait_until(lambda: listed() == [], "all are gone")
