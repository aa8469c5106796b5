"""`kraft quorum`: who leads the metadata quorum, who follows, how far behind."""

from __future__ import annotations

import time
from typing import Any

import typer

from kraft.cli.confluent_client import DEFAULT_BOOTSTRAP, Bootstrap, first_address
from kraft.cli.errors import CliError
from kraft.cli.tables import show

app = typer.Typer(no_args_is_help=True)


@app.callback()
def group() -> None:
    """Keeps `status` a command of its own, though it is the only one."""


@app.command()
def status(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show leader, term, high watermark, and the lag of every voter and observer."""
    from kraft.peers.blocking_client import describe_quorum

    try:
        partition = describe_quorum(*first_address(bootstrap)).topics[0].partitions[0]
    except OSError:
        raise CliError(f"{bootstrap}: no broker answers") from None
    print(f"LeaderId: {partition.leader_id}")
    print(f"LeaderEpoch: {partition.leader_epoch}")
    print(f"HighWatermark: {partition.high_watermark}")
    members = [(voter, "voter") for voter in partition.current_voters]
    members += [(observer, "observer") for observer in partition.observers]
    end = max((member.log_end_offset for member, _ in members), default=0)
    now_ms = int(time.time() * 1000)
    rows = [
        (
            member.replica_id,
            "leader" if member.replica_id == partition.leader_id else role,
            member.log_end_offset,
            end - member.log_end_offset,
            _ago(member.last_caught_up_timestamp, now_ms),
        )
        for member, role in members
    ]
    show(("node", "role", "log end", "lag", "caught up"), rows)


def _ago(timestamp: Any, now_ms: int) -> str:
    return "unknown" if timestamp < 0 else f"{max(0, now_ms - timestamp)} ms ago"
