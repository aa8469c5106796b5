"""What commands do before and beside any broker: options, sentences, tables, percentiles."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from typer.testing import CliRunner

from kraft.cli.bootstrap import addresses
from kraft.cli.confluent_client import key_values
from kraft.cli.errors import INTERRUPTED, CliError, UsageError, plain_errors, say
from kraft.cli.main import cli
from kraft.cli.perf import Latencies
from kraft.wire.malformed import MalformedMessage, UnencodableMessage
from metadata_quorum.foundation.errors import BrokerError, ErrorCode, ExitCode, FatalError

COMMANDS = [
    "up", "down", "start", "produce", "consume", "elect-leaders", "doctor",
    "node list", "node kill", "node stop", "node pause", "node resume", "node start",
    "topic create", "topic list", "topic describe", "topic alter", "topic delete",
    "config get", "config set", "quorum status", "metadata dump", "log dump",
    "reassign plan", "reassign run", "reassign status", "reassign cancel",
    "quota list", "quota set", "quota delete",
    "broker list", "broker unregister", "broker api-versions", "broker log-dirs", "topic delete-records",
    "features describe", "features upgrade", "features downgrade",
    "storage format", "storage info", "storage random-uuid", "perf produce", "perf consume", "perf latency",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    result = CliRunner().invoke(cli, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (CliError("so it is"), 1, "kraft: so it is\n"),
        (UsageError("so it is written"), 2, "kraft: so it is written\n"),
        (
            FatalError(ExitCode.PORT_IN_USE, "port 1 is in use"),
            ExitCode.PORT_IN_USE,
            "kraft: port 1 is in use\n",
        ),
        (BrokerError(ErrorCode.INVALID_CONFIG, "no"), 1, "kraft: INVALID_CONFIG: no\n"),
        (MalformedMessage("oh"), 1, "kraft: a broker answers what we do not understand: oh\n"),
        (UnencodableMessage("so long"), 1, "kraft: Kafka's protocol cannot say this: so long\n"),
        (FileNotFoundError(2, "No such file", "x"), 1, "kraft: x: No such file\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_expected_trouble_is_one_sentence(error, code, sentence, capsys):
    with pytest.raises(SystemExit) as ended, plain_errors():
        raise error
    assert ended.value.code == code
    assert capsys.readouterr().err == sentence


def test_what_kept_a_command_waiting_is_not_repeated_at_its_end(capsys):
    def wait_in_vain():
        say("nobody answers")
        raise CliError("nobody answers")

    with pytest.raises(SystemExit), plain_errors():
        wait_in_vain()
    assert capsys.readouterr().err == "kraft: nobody answers\n"


def test_ctrl_c_that_librdkafka_has_lost():
    def poll():
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise SystemError("<method 'poll'> returned NULL without setting an exception")

    with pytest.raises(SystemExit) as ended, plain_errors():
        poll()
    assert ended.value.code == 130


@pytest.mark.parametrize(
    "arguments",
    [
        "create t --partitions 100001",
        "create t --replication-factor 10001",
        f"create t --replica-assignment {'1,' * 100_000}1",
        f"create t --replica-assignment {':'.join(map(str, range(10_001)))}",
        "alter t --partitions 100001",
    ],
    ids=lambda arguments: arguments[:40],
)
def test_more_than_librdkafka_passes_on_is_a_wrong_command_line(arguments):
    with pytest.raises(SystemExit) as ended, plain_errors():
        cli(["topic", *arguments.split()])
    assert ended.value.code == 2


@pytest.mark.parametrize(("number", "times"), [("SIGINT", 1), ("SIGTERM", 3)])
def test_a_signal_in_a_callback_is_not_lost(number, times):
    """Python only prints what is raised there."""
    program = f"""
import signal, time, weakref
from kraft.cli.errors import plain_errors
from kraft.cli.interruption import interrupt

class Collected: pass

with plain_errors():
    signal.signal(signal.SIGTERM, interrupt)
    for _ in range({times}):
        collected = Collected()
        of_it = weakref.ref(collected, lambda _: signal.raise_signal(signal.{number}))
        del collected
    time.sleep(10)
    print("it ran on")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", "")


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_signal_behind_the_last_words_ends_the_process_without_a_word(number):
    program = f"""
import atexit, os, signal, sys
from kraft.__main__ import main
from kraft.cli.interruption import interrupt
signal.signal(signal.SIGTERM, interrupt)  # as `kraft up` has it
atexit.register(lambda: os.kill(os.getpid(), signal.{number}))
sys.argv = ["kraft", "storage", "random-uuid"]
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.Signals[number], "")


@pytest.mark.parametrize(("inside", "code"), [(True, -signal.SIGINT), (False, INTERRUPTED)])
def test_ctrl_c_while_librdkafka_closes_ends_the_process(inside, code):
    """It hears no signal, and may wait for brokers that are gone."""
    program = f"""
import os, signal
from kraft.cli.errors import plain_errors
from kraft.cli.interruption import ended_by_ctrl_c
with plain_errors():
    with ended_by_ctrl_c():
        if {inside}:
            os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")


def test_ctrl_c_while_an_error_is_told_leaves_no_traceback():
    program = """
import os, signal, sys
from kraft.__main__ import main
from kraft.cli import errors
tell = errors.tell
def interrupted(*lines):
    tell(*lines)
    os.kill(os.getpid(), signal.SIGINT)
errors.tell = interrupted
sys.argv = ["kraft", "node", "kill", "1", "--dir", "/nowhere"]
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == INTERRUPTED
    assert done.stderr.startswith("kraft: no cluster in /nowhere")
    assert done.stderr.count("\n") == 1


def test_a_bug_in_c_keeps_its_traceback():
    with pytest.raises(SystemError), plain_errors():
        raise SystemError("<method 'poll'> returned NULL without setting an exception")


@pytest.mark.parametrize(
    "command",
    [
        "topic create x --partitions -7", "topic create x --partitions 99999999999",
        "topic create x --replication-factor 70000", "topic create x --replica-assignment 1:99999999999",
        "topic alter x --partitions 0", "elect-leaders --topic x --partition 99999999999",
        "consume x -p -3", "consume x --timeout-ms -1", "consume x -g ''",
        "consume x -g ' '", "consume x -g ' boards'", "consume x -X group.id=", "consume x -X 'group.id= '",
        "produce x -p 99999999999",
        "produce x --timestamp 99999999999999999999", "perf produce x --throughput -4",
        "perf produce x --throughput inf", "perf latency x --rate nan", "perf produce x -s 99999999999",
        "user add x --iterations 99999999999", "topic list -b 127.0.0.1:99999", "sim run --seeds 5..1",
    ],
)  # fmt: skip
def test_numbers_that_no_request_holds_are_a_wrong_command_line(command):
    result = CliRunner().invoke(cli, shlex.split(command))
    assert result.exit_code == ExitCode.USAGE or isinstance(result.exception, UsageError)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_stream_that_the_shell_has_closed(closed):
    """`$closed` stands for it; what the command says on the others stays as it is."""
    script = f"{shlex.quote(sys.executable)} -m kraft storage random-uuid {closed}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (closed != ">&-")


def test_bytes_that_are_no_text():
    script = [sys.executable, "-m", "kraft", "group", "describe", b"\xff"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert done.stderr == "kraft: b'\\xff': not text in this terminal's encoding\n"


def test_a_bug_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), plain_errors():
        _ = 1 // 0


def test_pairs_and_addresses():
    assert key_values(["a=1", "b=x=y", "c="], "it") == {"a": "1", "b": "x=y", "c": ""}
    with pytest.raises(CliError, match="oops: it is given as KEY=VALUE"):
        key_values(["oops"], "it")
    assert addresses("a:1, b:2") == [("a", 1), ("b", 2)]
    assert addresses("[::1]:9092") == [("::1", 9092)]
    for nonsense in ("nonsense", "a:0", "a:65536", ":9092", f"a:{'1' * 5000}"):
        with pytest.raises(UsageError, match=nonsense):
            addresses(nonsense)


def test_percentiles():
    latencies = Latencies()
    assert str(latencies) == "no latency was measured"
    for ms in range(100, 0, -1):
        latencies.add(ms / 1000)
    assert str(latencies) == "p50 51.00 ms  p90 91.00 ms  p99 100.00 ms  p99.9 100.00 ms  max 100.00 ms"
