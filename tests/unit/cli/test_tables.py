"""Tables as text and as JSON; whoever prints one has the option."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kraft.cli import group
from kraft.cli.errors import tell
from kraft.cli.main import cli
from kraft.cli.tables import show, show_facts, show_names
from kraft.cli.wire_client import BrokerAnswers
from kraft.local.local_cluster import LocalCluster

ROOT = Path(__file__).parents[3]
CLI, CHAOS = ROOT / "kraft" / "cli", ROOT / "chaos" / "cli.py"


def test_plain_tables_line_up(capsys: pytest.CaptureFixture[str]) -> None:
    show(("topic", "n"), [("a", 1), ("longer", None)])
    assert capsys.readouterr().out == "topic   n\na       1\nlonger  -\n"


HOSTILE = "\x1b]0;owned\x07\ng"
TAMED = "\ufffd]0;owned\ufffd\ufffdg"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_name_tells_the_terminal_nothing(
    is_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it a line of its own: anybody may make a group."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    show(("group",), [(HOSTILE,)], about={"Of": HOSTILE})
    show_names("group", [HOSTILE])
    show_facts({"Group": HOSTILE})
    tell(f"kraft: {HOSTILE}", "two\nlines")
    out, err = capsys.readouterr()
    assert out.count(TAMED) == 4
    assert err == "kraft: \ufffd]0;owned\ufffd\ng\ntwo\nlines\n"
    assert "\x07" not in out + err
    assert "\x1b]" not in out + err


def test_in_json_names_are_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [(HOSTILE, "classic", "Stable")]
    monkeypatch.setattr(group, "list_groups", lambda _: (groups, BrokerAnswers({}, [])))
    done = CliRunner().invoke(cli, ["group", "list", "--output", "json"])
    assert json.loads(done.output)[0]["GROUP"] == HOSTILE


def test_what_holds_for_all_rows_stands_before_them(capsys: pytest.CaptureFixture[str]) -> None:
    show(("n",), [(1,)], about={"Topic": "t", "Configs": ""})
    show(("n",), [(1,)], about={"Topic": "t", "Configs": ""}, one_line=True)
    assert capsys.readouterr().out == "Topic: t\nConfigs:\nn\n1\nTopic: t  Configs:\nn\n1\n"


def test_a_terminal_too_narrow_for_the_words_of_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    columns, rows = ("PARTITION", "CURRENT-OFFSET", "LAG"), [(0, 17, 3), (1, 4, None)]
    monkeypatch.setenv("COLUMNS", "40")
    show(columns, rows)
    assert "─" * 30 in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "30")
    show(columns, rows)
    assert capsys.readouterr().out == (
        "PARTITION: 0\nCURRENT-OFFSET: 17  LAG: 3\n\nPARTITION: 1\nCURRENT-OFFSET: 4  LAG: -\n"
    )


def test_a_wide_terminal_that_knows_no_colours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editor's, say."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "120")
    show(("directory", "name"), [("d" * 70, "n" * 30)])
    assert f"{'d' * 70}   {'n' * 30}" in capsys.readouterr().out


def test_json_for_one_command_is_text_for_the_next(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    LocalCluster.create(tmp_path, nodes=1, ports=free_ports(3))
    where = ["node", "list", "--dir", str(tmp_path)]
    found = json.loads(CliRunner().invoke(cli, [*where, "--output", "json"]).output)
    assert found["directory"] == str(tmp_path)
    assert found["listeners"] == "PLAINTEXT"
    (node,) = found["rows"]
    assert (node["node"], node["state"], node["pid"]) == (1, "down", None)
    assert "node  state  pid" in CliRunner().invoke(cli, where).output


def test_every_command_that_prints_a_table_is_marked() -> None:
    unmarked = [f"{path.name}: {name}" for path in (*CLI.glob("*.py"), CHAOS) for name in _unmarked(path)]
    assert unmarked == []


def _called(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def _unmarked(path: Path) -> list[str]:
    """Commands of the module from which `show` is reached, without `@prints_table`."""
    functions = {
        each.name: each for each in ast.parse(path.read_text()).body if isinstance(each, ast.FunctionDef)
    }
    calls = {
        name: {
            node.func.id
            for node in ast.walk(each)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        for name, each in functions.items()
    }

    def reaches(name: str, seen: frozenset[str] = frozenset()) -> bool:
        if name in ("show", "show_facts"):
            return name not in functions
        return any(reaches(other, seen | {name}) for other in calls.get(name, set()) - seen)

    return [
        name
        for name, each in functions.items()
        if any("command" in ast.unparse(decorator) for decorator in each.decorator_list)
        and all(ast.unparse(decorator) != "prints_table" for decorator in each.decorator_list)
        and reaches(name)
    ]
