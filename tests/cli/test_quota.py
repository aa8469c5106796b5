"""`kraft quota` on real nodes."""

from __future__ import annotations

import pytest

from kraft.local_cluster import LocalCluster
from tests.cli.test_tools import Shell
from tests.waiting import wait_until


@pytest.mark.row("R12", "U2")
def test_quotas_are_set_listed_and_deleted(shared_cluster: LocalCluster) -> None:
    shell = Shell(shared_cluster.bootstrap)
    mine = ("--user", "cli-user")

    def listed(*entity: str) -> list[list[str]]:
        return [line.split("  ") for line in shell("quota", "list", *entity).splitlines()[1:]]

    def words(*entity: str) -> list[list[str]]:
        return [[word.strip() for word in row if word.strip()] for row in listed(*entity)]

    assert shell.refused("quota", "set", "producer_byte_rate=1") == (
        "whose quota? Give --user, --client-id, both, or --ip"
    )
    assert shell.refused("quota", "set", "producer_byte_rate=much", *mine).endswith("a quota is a number")
    assert "Invalid configuration key speed" in shell.refused("quota", "set", "speed=1", *mine)
    assert shell.refused("quota", "delete", *mine) == "user cli-user: there is no quota"
    assert shell("quota", "set", "producer_byte_rate=9000000", "request_percentage=50.5", *mine) == ""
    shell("quota", "set", "consumer_byte_rate=8000000", *mine, "--client-id", "")
    wanted = [
        ["user cli-user", "producer_byte_rate", "9000000"],
        ["user cli-user", "request_percentage", "50.5"],
    ]
    wait_until(lambda: len(words(*mine)) == 3, "the node that is asked knows them")
    found = words(*mine)
    assert found == [*wanted, ["user cli-user, client-id (default)", "consumer_byte_rate", "8000000"]]
    shell("quota", "delete", "request_percentage", *mine)
    shell("quota", "delete", *mine, "--client-id", "")
    wait_until(lambda: words(*mine) == wanted[:1], "they are gone")
    shell("quota", "delete", *mine)
    wait_until(lambda: words(*mine) == [], "all are gone")
