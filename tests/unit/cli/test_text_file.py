"""Files that the user names: whichever command reads one, what is no text is refused in one sentence."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from kraft.cli.errors import CliError
from kraft.cli.text_file import text_of
from tests.support.nodes.forks import run_kraft

ROOT: Final = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "command",
    [
        "topic list --command-config {}",
        "reassign run {}",
        "group reset-offsets g --from-file {} --all-topics",
        "user add u --password-file {}",
        "chaos run workload --simulate --schedule {}",
    ],
)
def test_bytes_that_are_no_text(command: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\xb4\xff\n" * 100)
    done = run_kraft(*command.format(file).split())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"kraft: cannot read {file}: it is no text\n"


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"cannot read .*: Is a directory"):
        text_of(tmp_path)
    with pytest.raises(CliError, match=r"cannot read .*/none: No such file or directory"):
        text_of(tmp_path / "none")


PRINTS = """
from kraft.cli.text_file import CliError, text_of
try:
    print(ascii(text_of("-")))
except CliError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("given", "printed"), [("grün\n".encode(), "'gr\\xfcn\\n'"), (b"\xff", "cannot read -: it is no text")]
)
def test_standard_input_is_utf_8_in_any_locale(given: bytes, printed: str) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PRINTS]
    done = subprocess.run(command, input=given, env=plain, capture_output=True, check=True)
    assert done.stdout.decode().strip() == printed


def test_no_command_reads_its_text_otherwise() -> None:
    modules = (*ROOT.glob("kraft/cli/*.py"), *ROOT.glob("chaos/**/cli.py"))
    reads = re.compile(r"\.read_text\(|(?<![\w.])open\(")
    assert [path.name for path in modules if reads.search(path.read_text())] == ["text_file.py"]
