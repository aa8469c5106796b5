"""No background work outside the error boundary (metadata_quorum/foundation/supervision.py), and nobody who
may wait on the loop (metadata_quorum/foundation/blocking.py) without a reason."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from tests.tidy.sources import nodes_of, python_files, text_of

ROOMS: Final = ("kraft", "fetch", "data_plane", "metadata_quorum")

TASKS: Final = frozenset({"create_task", "ensure_future", "TaskGroup"})
MAY_START_TASKS: Final = {
    "metadata_quorum/foundation/supervision.py": "the boundary itself",
    "kraft/node/serve.py": "waits for both tasks that it starts, and for nothing else",
    "fetch/fetcher.py": "its run awaits what it has in flight, or looks at its error",
}

SILENCERS: Final = frozenset({"set_exception_handler"})
MAY_SET_THE_HANDLER: Final = {"kraft/node/serve.py": "installs the boundary"}

SELF_ARMING: Final = frozenset({"call_later", "call_at", "call_soon", "NextTurn"})
"""What they run is bounded by the loop, which tells the boundary (foundation/test_supervision.py); but a
timer that sets itself again at its end would be gone after a fault."""
PROVEN: Final = {
    "data_plane/coordinator/groups/service.py": "each shard's share of a sweep is bounded for itself",
    "data_plane/coordinator/loading.py": "a partition that fails again is tried again",
    "data_plane/coordinator/runtime.py": "what the machine does in a tick is bounded, then the timer is set",
    "data_plane/coordinator/transactions/service.py": "set again before the work",
    "metadata_quorum/foundation/turns.py": "hands out turns; each piece is its own request's work",
    "data_plane/log_manager/background_work.py": "rings once",
    "data_plane/log_manager/checkpoint_writer.py": "rings once",
    "data_plane/log_manager/log_executor.py": "rings once",
    "data_plane/log_manager/log_manager.py": "rings once",
    "data_plane/replication/delta_applier.py": "sets a number",
    "data_plane/replication/isr_requests.py": "rings once",
    "data_plane/replication/replica_manager.py": "set again before the work",
    "data_plane/purgatory/completion_turns.py": "set again whatever the work does",
    "data_plane/purgatory/purgatory.py": "rings once",
    "data_plane/purgatory/timing_wheel.py": "each callback is bounded for itself, then the timer is set",
    "fetch/delayed_fetch.py": "answers its client also where it fails; who waits for a look has one anyway",
    "fetch/fetcher.py": "ring once; of the truncations each is bounded for itself, then the rest is begun",
    "fetch/session_ends.py": "set again before the work",
    "kraft/api/long_work.py": "hands out turns; each piece is its own request's work",
    "kraft/api/metadata_reader.py": "rings once; turns: set again before the work",
    "kraft/api/sasl.py": "rings once",
    "kraft/broker/failover_metadata.py": "rings once",
    "kraft/http/listener.py": "the sweep is set anew before the work",
    "kraft/net/acceptor.py": "ring once; turns: set again before the work",
    "kraft/net/client.py": "rings for a connection that it ends, or sets itself again as its last act",
    "kraft/net/connections.py": "the sweep is set again before the work",
    "kraft/net/read_turns.py": "set again before the work",
    "kraft/net/reply_turns.py": "set again whatever the work does",
    "kraft/net/server_connection.py": "rings once",
    "kraft/net/turn_budget.py": "set again before the work",
    "kraft/node/metadata_publisher.py": "rings once; what goes wrong in it is bounded",
    "kraft/peers/raft_driver.py": "a fault of Raft ends the node",
    "kraft/api/node_view.py": "forgets a view, once",
    "kraft/monitoring/stall_watch.py": "notes a number, then is set again",
    "metadata_quorum/foundation/next_turn.py": "may be asked for again before the work begins",
    "metadata_quorum/controller/controller.py": "the claim of a term, once",
    "metadata_quorum/controller/leader_rebalance.py": "set again before the work",
    "metadata_quorum/controller/proposer.py": "a proposal's limit rings once",
    "metadata_quorum/controller/broker_liveness.py": "set again where its turn fails",
}


MAY_WAIT: Final = {
    "metadata_quorum/foundation/blocking.py": "Raft's fsync; whoever does not serve yet",
    "kraft/api/context.py": "the executor",
    "data_plane/log/log.py": "a truncated log's producers are known before anything else happens to it",
    "data_plane/log_manager/log_manager.py": "a new log is empty",
    "data_plane/replication/replica_moves.py": "a new copy is empty; a whole one kept before the old goes",
}
"""Who makes a `MayBlock`."""
DO_NOT_SERVE: Final = {
    "metadata_quorum/foundation/blocking.py",
    "data_plane/log/dump.py",
    "kraft/storage/bootstrap.py",
    "kraft/local/private_files.py",
    "kraft/node/node.py",
    "kraft/storage/formatter.py",
    "kraft/storage/migration.py",
    "kraft/storage/quorum_state.py",
    "kraft/storage/stopped_log.py",
}
OF_RAFT: Final = {
    "metadata_quorum/metadata/metadata_log.py",
    "metadata_quorum/raft/identity.py",
    "metadata_quorum/raft/journal.py",
    "metadata_quorum/raft/snapshots.py",
}
BLOCKING: Final = "metadata_quorum.foundation.blocking"
SOUGHT: Final = TASKS | SILENCERS | SELF_ARMING | {"MayBlock", "NOT_SERVING", "RAFT"}


@cache
def _names() -> Mapping[str, set[str]]:
    """Of every attribute and every name in the files that use one of SOUGHT: in which files."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in python_files(*ROOMS):
        if file.startswith("kraft/cli/"):  # a client's own loop
            continue
        if not any(name in text_of(file) for name in SOUGHT):  # most files: to parse them all takes seconds
            continue
        for node in nodes_of(file):
            if isinstance(node, ast.Attribute):
                found[node.attr].add(file)
            elif isinstance(node, ast.Name):
                found[node.id].add(file)
            if isinstance(node, ast.ImportFrom) and node.module == BLOCKING:
                for alias in node.names:
                    found[f"{alias.name} of blocking"].add(file)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found[f"{node.func.id}()"].add(file)
    return found


def _users(names: Iterable[str]) -> set[str]:
    assert all(name.removesuffix("()").removesuffix(" of blocking") in SOUGHT for name in names)
    return set().union(*(_names()[name] for name in names))


def test_tasks_are_started_by_the_boundary():
    assert _users(TASKS) == set(MAY_START_TASKS)


def test_nobody_else_takes_the_errors_of_the_loop():
    assert _users(SILENCERS) == set(MAY_SET_THE_HANDLER)


def test_every_timer_is_known_to_survive_its_own_fault():
    assert _users(SELF_ARMING) == set(PROVEN)


def test_who_may_wait_is_known():
    assert _users({"MayBlock()"}) == set(MAY_WAIT)
    assert _users({"NOT_SERVING"}) == DO_NOT_SERVE
    assert _users({"RAFT of blocking"}) == OF_RAFT
