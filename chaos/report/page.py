"""The page itself: the contents of a run's files, as JSON inside one HTML file with its script and style."""

from __future__ import annotations

import html
import json
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Final

from chaos.report import anomalies, client_series, cluster_series, recorded
from chaos.report.buckets import MS, Buckets, buckets_over, milliseconds
from chaos.report.narrative import narrative
from chaos.report.recorded import RecordedRun
from chaos.run_files import HISTORY, REPORT, TWIN

TWIN_REPORT: Final = f"{TWIN}/{REPORT}"
"""The same run with a bug planted, where its scenario plays it twice."""
TEMPLATE: Final = "page.html"
STYLE: Final = "page.css"
SCRIPTS: Final = ("axis.js", "rows.js", "timeline.js", "anomalies.js", "narrative.js", "page.js")


def write_report(directory: Path) -> Path:
    """Reads the files of the run in `directory`, writes report.html beside them, and returns its path."""
    page = directory / REPORT
    page.write_text(_filled(_data(directory, recorded.read(directory))), encoding="utf-8")
    return page


def _data(directory: Path, run: RecordedRun) -> dict[str, Any]:
    buckets = buckets_over(run.duration_ns)
    return {
        **_verdict(directory, run),
        "duration": milliseconds(run.duration_ns),
        "bucket": buckets.width_ns / MS,
        "faults": cluster_series.faults(run.events, buckets),
        "cluster": cluster_series.cluster(run.cluster, buckets),
        "clients": _clients(run, buckets),
        "anomalies": anomalies.shown(run),
        "narrative": narrative(run),
    }


def _clients(run: RecordedRun, buckets: Buckets) -> dict[str, Any]:
    return {
        "topics": client_series.topics(run.history, buckets),
        "latency": client_series.latency(run.history, buckets),
        "outcomes": client_series.outcomes(run.history, buckets),
        "crashes": client_series.crashes(run.history),
    }


def _verdict(directory: Path, run: RecordedRun) -> dict[str, Any]:
    verdict, header = run.verdict, run.history.header
    scenario = verdict.get("scenario") or header.scenario
    seed = verdict.get("seed") if verdict.get("seed") is not None else header.seed
    return {
        "scenario": scenario,
        "seed": seed,
        "ok": bool(verdict["ok"]),
        "sentence": _sentence(run),
        "command": verdict.get("command")
        or _command(scenario, seed) + (" --simulate" if verdict.get("simulated") else ""),
        "twin": TWIN_REPORT if (directory / TWIN_REPORT).exists() else None,
        "expectations": list(verdict.get("expectations", ())),
        "facts": _facts(run),
    }


def _command(scenario: str | None, seed: int | None) -> str:
    if scenario is None:
        return f"kraft chaos check {HISTORY}"
    return f"kraft chaos run {scenario}" + (f" --seed {seed}" if seed is not None else "")


def _sentence(run: RecordedRun) -> str:
    """The result, in one sentence."""
    counts = run.findings.get("counts", {}).values()
    forbidden = sum(count["forbidden"] for count in counts)
    expected = sum(count.get("expected", 0) for count in counts)
    tolerated = sum(count["allowed"] for count in counts) - expected
    expectations = run.verdict.get("expectations", ())
    met = sum(expectation["ok"] for expectation in expectations)
    parts = [f"{met} of {_count(len(expectations), 'expectation')} met"] if expectations else []
    parts.append(
        _count(forbidden, "forbidden anomaly", "forbidden anomalies") if forbidden else "no forbidden anomaly"
    )
    if expected:
        parts.append(f"{expected:,} expected")
    if tolerated:
        parts.append(f"{tolerated:,} tolerated")
    operations = _count(len(run.history.operations), "operation")
    return f"{', '.join(parts)}, in {operations} over {run.duration_ns / 1e9:.1f} s."


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _facts(run: RecordedRun) -> list[tuple[str, str]]:
    """Names and values for the small print: when, what, how much; then what the checker counted."""
    operations = run.history.operations
    facts = []
    if run.history.header.started_ms:
        started = datetime.fromtimestamp(run.history.header.started_ms / 1000, UTC)
        facts.append(("started", started.strftime("%Y-%m-%d %H:%M:%S UTC")))
    facts.append(("operations", f"{len(operations):,}"))
    facts.append(("processes", f"{len({operation.process for operation in operations}):,}"))
    for name, mode in run.history.header.topics.items():
        facts.append((name, f"{_count(mode.partitions, 'partition')}, {client_series.mode_words(mode)}"))
    facts += [(name.replace("_", " "), f"{value:,}") for name, value in run.findings.get("stats", {}).items()]
    return facts


def _filled(data: dict[str, Any]) -> str:
    """The template with its parts in place. "</" and "<!--" in a string would end the script that holds the
    data, so "<" is written as JavaScript's and JSON's own escape for it."""
    name = data["scenario"] or "history"
    title = name + (f", seed {data['seed']}" if data["seed"] is not None else "")
    encoded = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    shipped = files("chaos.report")
    return Template((shipped / TEMPLATE).read_text(encoding="utf-8")).substitute(
        title=html.escape(f"{title}: {'held' if data['ok'] else 'broken'}"),
        style=(shipped / STYLE).read_text(encoding="utf-8"),
        script="\n".join((shipped / script).read_text(encoding="utf-8") for script in SCRIPTS),
        data=encoded,
    )
