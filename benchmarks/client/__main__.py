"""Entry of the load generator: one job as a JSON line on standard input, one result on standard output."""

from __future__ import annotations

import json
import sys

from benchmarks.client.compute import ComputeJob, compute
from benchmarks.client.groups import CommitJob, RebalanceJob, commit, rebalance
from benchmarks.client.latency import ReceiveJob, SendJob, receive, send
from benchmarks.client.probe import ProbeJob, probe
from benchmarks.client.throughput import ConsumeJob, ProduceJob, consume, produce
from benchmarks.client.transactions import TransactJob, transact

JOBS = {
    "produce": (ProduceJob, produce),
    "consume": (ConsumeJob, consume),
    "send": (SendJob, send),
    "receive": (ReceiveJob, receive),
    "compute": (ComputeJob, compute),
    "probe": (ProbeJob, probe),
    "rebalance": (RebalanceJob, rebalance),
    "commit": (CommitJob, commit),
    "transact": (TransactJob, transact),
}


def main() -> None:
    request = json.loads(sys.stdin.readline())
    job_class, run = JOBS[request.pop("job")]
    result = run(job_class(**request))  # type: ignore[operator]
    sys.stdout.write(json.dumps(result) + "\n")


main()
