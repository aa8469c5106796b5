"""The same mistake has the same exit code, whichever command it is made with: each command is tried."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import typer

from kraft.cli.errors import UsageError
from kraft.cli.main import cli
from metadata_quorum.foundation.errors import ExitCode
from tests.support.nodes.forks import run_kraft

ROOT: Final = typer.main.get_command(cli)
NEEDED: Final = {
    "start": "x.properties", "produce": "t", "consume": "t", "top": "--once",
    "topic create": "t", "topic alter": "t --partitions 2", "topic delete-records": "t --before-offset 1",
    "topic delete": "t", "config get": "topic t", "config set": "topic t retention.ms=1",
    "group reset-offsets": "g --topic t --to-earliest", "group delete-offsets": "g --topic t",
    "group delete": "g", "txn describe": "x", "txn abort": "x", "broker unregister": "7",
    "features upgrade": "--feature group.version=1", "features downgrade": "--feature group.version=0",
    "reassign plan": "t", "reassign run": "/dev/stdin", "quota set": "producer_byte_rate=1 --user u",
    "quota delete": "--user u", "user add": "u --password-file /dev/stdin", "user delete": "u",
    "acl list": "--topic t", "acl add": "--allow-principal User:u --producer --topic t",
    "acl remove": "--allow-principal User:u --producer --topic t --force", "log dump": "x.log",
    "storage format": "-t x -c x", "storage export": "-c x", "storage import": "-c x", "storage info": "-c x",
    "perf produce": "t", "perf consume": "t", "perf latency": "t", "node kill": "1", "node stop": "1",
    "node pause": "1", "node resume": "1", "node start": "1", "chaos link": "list", "chaos run": "workload",
    "chaos compare": "x", "chaos check": "x", "sim replay": "1", "sim shrink": "1",
}  # fmt: skip
"""What commands cannot do without."""
GIVEN: Final = {
    "reassign run": '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}',
    "user add": "secret\n",
}
"""On standard input."""


def commands(group: Any = ROOT, *path: str) -> Iterator[tuple[str, Any]]:
    """Each with its name, as it is typed."""
    names = group.list_commands(typer.Context(ROOT)) if group is ROOT else group.commands
    for name in names:
        found = group.get_command(typer.Context(ROOT), name) if group is ROOT else group.commands[name]
        if hasattr(found, "commands"):
            yield from commands(found, *path, name)
        else:
            yield " ".join((*path, name)), found


def options(command: Any) -> set[str]:
    return {name for param in command.params for name in param.opts}


ALL: Final = dict(commands())
THAT_CONNECT: Final = sorted(name for name in ALL if "--bootstrap-server" in options(ALL[name]))


def typed(name: str, *more: str) -> list[str]:
    return [*name.split(), *shlex.split(NEEDED.get(name, "")), *more]


def refusal_of(*arguments: str) -> Exception:
    with pytest.raises(Exception) as refused:
        ROOT.main(list(arguments), prog_name="kraft", standalone_mode=False)
    return refused.value


@pytest.mark.row("U2")
@pytest.mark.parametrize("name", sorted(ALL))
def test_an_option_that_there_is_not(name: str) -> None:
    assert refusal_of(*typed(name, "--no-such-option")).exit_code == ExitCode.USAGE


@pytest.mark.row("U2")
@pytest.mark.parametrize("name", THAT_CONNECT)
def test_an_address_that_is_none(name: str) -> None:
    refused = refusal_of(*typed(name, "--bootstrap-server", "nowhere"))
    assert isinstance(refused, UsageError)
    assert str(refused) == "nowhere: a bootstrap server is HOST:PORT"


@pytest.mark.row("U2")
@pytest.mark.parametrize("name", THAT_CONNECT)
def test_nobody_answers(name: str, free_ports: Callable[[int], list[int]]) -> None:
    (port,) = free_ports(1)
    done = run_kraft(*typed(name, "--bootstrap-server", f"127.0.0.1:{port}"), stdin=GIVEN.get(name, ""))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"kraft: 127.0.0.1:{port} refuses connections\n"


@pytest.mark.row("U2")
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_help_fits_the_terminal(columns: int) -> None:
    for name, command in ALL.items():
        context = typer.Context(command, info_name=name, terminal_width=columns)
        shown = command.get_help(context).splitlines()
        assert [line for line in shown if len(line) > columns] == [], name
