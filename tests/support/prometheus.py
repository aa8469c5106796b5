"""A Prometheus (Debian's package, or any on PATH) that scrapes nodes every second, and is asked."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.waiting import wait_until

HOST: Final = "127.0.0.1"


@dataclass(frozen=True)
class ScrapeJob:
    """What a line of `scrape_configs` says; `targets` are ports, each with labels of its own."""

    name: str
    targets: Mapping[int, Mapping[str, str]]
    names: str
    """Of the metrics: see kraft/metrics/metric.py."""


@dataclass(frozen=True)
class Prometheus:
    port: int

    def query(self, expression: str) -> list[Any]:
        """The series that an instant query gives. Raises ValueError where it is wrong."""
        asked = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"{self._url}/query?{asked}", timeout=30) as answer:
                return list(json.load(answer)["data"]["result"])
        except urllib.error.HTTPError as error:
            raise ValueError(f"{expression}: {error.read().decode()}") from None

    def is_up(self) -> bool:
        try:
            return bool(self.query("up"))
        except (OSError, ValueError):  # it loads its storage
            return False

    @property
    def _url(self) -> str:
        return f"http://{HOST}:{self.port}/api/v1"


@contextmanager
def prometheus(directory: Path, port: int, jobs: Sequence[ScrapeJob]) -> Iterator[Prometheus]:
    """Runs until the end. Skips where there is none."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus on PATH (Debian's package prometheus)")
    config = directory / "prometheus.json"  # which is YAML, too
    config.write_text(json.dumps({"global": _GLOBAL, "scrape_configs": [_job(each) for each in jobs]}))
    with (directory / "prometheus.log").open("wb") as output:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={HOST}:{port}",
            ],
            stdout=output,
            stderr=output,
        )
        try:
            running = Prometheus(port)
            wait_until(running.is_up, "Prometheus has scraped")
            yield running
        finally:
            process.terminate()
            process.wait(30)


_GLOBAL: Final = {"scrape_interval": "1s", "scrape_timeout": "1s"}


def _job(job: ScrapeJob) -> dict[str, Any]:
    return {
        "job_name": job.name,
        "params": {"names": [job.names]},
        "static_configs": [
            {"targets": [f"{HOST}:{port}"], "labels": dict(labels)} for port, labels in job.targets.items()
        ],
    }
