"""Toxiproxy's server: found or built once, and never left behind. No Toxiproxy runs here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from chaos.live import toxiproxy
from chaos.live.toxiproxy import find_server
from metadata_quorum.foundation.errors import ExitCode, FatalError
from tests.support.nodes.processes import runs
from tests.support.waiting import wait_until

GO_THAT_BUILDS = """#!/bin/sh
test "$1" = install || exit 1
echo "$$" >> "$(dirname "$0")/runs"
printf '#!/bin/sh\\necho built\\n' > "$GOBIN/server"
chmod +x "$GOBIN/server"
"""
GO_WITHOUT_A_NETWORK = """#!/bin/sh
echo "go: downloading" >&2
echo "dial tcp: lookup modules.example: no such host" >&2
exit 1
"""


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Put a program on an otherwise empty PATH; no wheel of Go, an empty cache."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "dirname", "chmod", "sleep"):
        (programs / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(toxiproxy.importlib.util, "find_spec", lambda name: None)

    def put(name: str, text: str) -> None:
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    return put


def test_the_one_on_path_is_taken(put: Callable[[str, str], None], tmp_path: Path) -> None:
    put("toxiproxy-server", "#!/bin/sh\n")
    assert find_server() == tmp_path / "bin" / "toxiproxy-server"


def test_it_is_built_once_also_by_many_at_once(put: Callable[[str, str], None], tmp_path: Path) -> None:
    put("go", GO_THAT_BUILDS)
    with ThreadPoolExecutor(4) as pool:
        (built,) = set(pool.map(lambda _: find_server(), range(4)))
    assert subprocess.run([built], capture_output=True, check=True).stdout == b"built\n"
    assert list(built.parent.iterdir()) == [built], "no leftovers in the cache"
    runs = (tmp_path / "bin" / "runs").read_text()
    assert find_server() == built
    assert (tmp_path / "bin" / "runs").read_text() == runs


def test_where_nothing_works_one_sentence_says_what_to_install(put: Callable[[str, str], None]) -> None:
    with pytest.raises(FatalError, match=r"put toxiproxy-server on PATH .* there is no Go either") as refused:
        find_server()
    assert refused.value.exit_code == ExitCode.MISSING_TOOL
    put("go", GO_WITHOUT_A_NETWORK)
    with pytest.raises(FatalError, match=r"could not build it: dial tcp: .* no such host") as refused:
        find_server()
    assert "\n" not in refused.value.reason


def test_the_go_of_the_wheel_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    (go,) = toxiproxy.go_programs()
    done = subprocess.run([go, "version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("go version go1.")


PROGRAM = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
KEEPER = (sys.executable, "-m", "chaos.live.keeper")


def _pid_of(keeper: subprocess.Popen[str]) -> psutil.Process:
    assert keeper.stdout is not None
    return psutil.Process(int(keeper.stdout.readline()))


@pytest.mark.parametrize("victim", ["owner", "keeper"])
def test_a_program_ends_with_its_owner_and_with_its_keeper(victim: str) -> None:
    """Killed, with no chance to put anything in order."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as owner:
        command = [*KEEPER, "--with", str(owner.pid), sys.executable, "-c", PROGRAM]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as keeper:
            program = _pid_of(keeper)
            (owner if victim == "owner" else keeper).kill()
            wait_until(lambda: not runs(program), "the program is ended")
            keeper.wait(180)
        owner.kill()


def test_a_keeper_without_owner_ends_its_program_on_request() -> None:
    command = [*KEEPER, sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as keeper:
        program = _pid_of(keeper)
        keeper.terminate()
        keeper.wait(180)
    assert not runs(program)
