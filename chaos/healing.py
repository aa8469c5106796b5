"""Waits until a cluster whose faults were lifted is whole again, and measures how long each part took."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from chaos.live.cluster import ChaosCluster
from chaos.observer import Observer
from kraft.local.free_ports import HOST
from kraft.peers.blocking_client import out_of_sync
from kraft.wire.bridge import MalformedMessage

LOOK_S: Final = 0.1
FRESH_S: Final = 0.3
"""Before that, the observer may still have the former state."""


class RecoveryProgress(NamedTuple):
    """Seconds from the call on; None: not within the patience."""

    controller_s: float | None
    leaders_s: float | None
    isr_s: float | None


def await_recovery(cluster: ChaosCluster, observer: Observer, patience_s: float) -> RecoveryProgress:
    """Until there is a controller, every partition has a leader, and every ISR is full: those of internal
    topics too, and as every node knows it."""
    start = time.monotonic()
    controller_s = leaders_s = None
    while (passed := time.monotonic() - start) < patience_s:
        time.sleep(LOOK_S)
        if passed < FRESH_S:
            continue
        if controller_s is None and _is_up(observer, observer.controller()):
            controller_s = passed
        if leaders_s is None and _all_are_led(observer):
            leaders_s = passed
        if controller_s is not None and leaders_s is not None and _is_full(cluster):
            return RecoveryProgress(controller_s, leaders_s, time.monotonic() - start)
    return RecoveryProgress(controller_s, leaders_s, None)


def _all_are_led(observer: Observer) -> bool:
    keys = observer.keys()
    return all(_is_up(observer, observer.leader(key)) for key in keys)


def _is_up(observer: Observer, node: int | None) -> bool:
    return node is not None and observer.state(node) == "up"


def _is_full(cluster: ChaosCluster) -> bool:
    try:
        return not any(out_of_sync(HOST, node.client_port) for node in cluster.local.nodes.values())
    except (OSError, MalformedMessage):
        return False
