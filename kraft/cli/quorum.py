"""`kraft quorum`: who leads the metadata quorum, who follows, how far behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from kraft.cli.bootstrap import no_broker
from kraft.cli.confluent_client import DEFAULT_BOOTSTRAP, SurveyedBootstrap
from kraft.cli.errors import CliError
from kraft.cli.tables import prints_table, show
from metadata_quorum.foundation.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from kraft.cli.survey import Survey
    from kraft.wire.bridge import Message

app = typer.Typer(no_args_is_help=True)


@app.callback()
def group() -> None:
    """Keeps `status` a command of its own, though it is the only one."""


@app.command()
@prints_table
def status(bootstrap: SurveyedBootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show leader, term, high watermark, and the lag of every voter and observer.

    Where the leader does not answer: what each voter says.
    """
    from kraft.cli.survey import survey

    found = survey(bootstrap)
    if not found.metadata:
        raise no_broker(bootstrap, list(found.silent.values()))
    if found.quorum_is_hidden and found.quorum is None:
        raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "DESCRIBE on the cluster is needed")
    if found.quorum is None:
        _show_voters(found)
    else:
        _show_quorum(found.quorum)


def _show_quorum(partition: Message) -> None:
    about = {
        "LeaderId": partition.leader_id,
        "LeaderEpoch": partition.leader_epoch,
        "HighWatermark": partition.high_watermark,
    }
    members = [(voter, "voter") for voter in partition.current_voters]
    members += [(observer, "observer") for observer in partition.observers]
    end = max((member.log_end_offset for member, _ in members), default=0)
    # The leader's own is its clock; ours may be minutes off.
    now_ms = max((member.last_caught_up_timestamp for member, _ in members), default=0)
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
    show(("node", "role", "log end", "lag", "caught up"), rows, about=about)


def _ago(timestamp: Any, now_ms: int) -> str:
    return "unknown" if timestamp < 0 else f"{max(0, now_ms - timestamp)} ms ago"


def _show_voters(found: Survey) -> None:
    """Raises CliError: that there is no leader is what the command has to say."""
    show(("node", "controller", "answer"), [(each.node_id, each.address, each) for each in found.controllers])
    answering = sum(not each.silence for each in found.controllers)
    majority = len(found.controllers) // 2 + 1
    brokers = ", ".join(found.name_of(address) for address in found.metadata)
    raise CliError(
        f"no leader of the metadata quorum answers {brokers}; "
        f"{answering} of {len(found.controllers)} voters answer us, {majority} are needed"
    )
