"""The node process of a chaos cluster: what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from chaos.live.control import TAKEN
from kraft.config.properties import format_properties
from metadata_quorum.foundation.errors import ExitCode


def test_a_plant_that_there_is_not_is_refused(tmp_path: Path) -> None:
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "log.dirs": str(tmp_path / "data"),
    }
    (tmp_path / "server.properties").write_text(format_properties(properties))
    command = [sys.executable, "-m", "chaos.live.process", str(tmp_path / "server.properties")]
    ended = subprocess.run([*command, "--plant", "no-such"], capture_output=True, text=True, check=False)
    assert ended.returncode == ExitCode.USAGE
    assert ended.stderr.startswith("kraft: no plant is named no-such; there are acknowledge-before-isr, ")
    assert not (tmp_path / TAKEN).exists()
