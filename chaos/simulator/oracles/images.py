"""What nodes know of the cluster, when nothing happens any more: all of them the same, whether they have it
from every record, from a snapshot and the records behind it, or from their own log after a start.

A node that lacks one change is wrong for as long as it runs, and mostly no client notices.
"""

from __future__ import annotations

from dataclasses import fields, replace

from chaos.simulator.cluster import Cluster
from chaos.simulator.oracles.quorum import Report
from metadata_quorum.metadata.image import MetadataImage


def behind(cluster: Cluster) -> str:
    """Which node does not know yet what the active controller knows; empty where all do."""
    active = _of_controller(cluster)
    for node_id, image in _images(cluster).items():
        if image.offset != active.offset:
            return f"{node_id} knows the metadata up to {image.offset} of {active.offset}"
    return ""


def compare_images(cluster: Cluster, report: Report) -> None:
    """Report what two nodes have different. Of another version of the software nothing is said."""
    active = _without_its_batch(_of_controller(cluster))
    for node_id, image in _images(cluster).items():
        if type(image) is not type(active) or image.offset != active.offset:
            continue
        mine = _without_its_batch(image)
        for field in fields(active):
            found, expected = getattr(mine, field.name), getattr(active, field.name)
            if found != expected:
                report("metadata", f"{node_id} has {field.name} {found}, the active controller {expected}")


def _without_its_batch(image: MetadataImage) -> MetadataImage:
    """Who has it from a snapshot knows other times."""
    return replace(image, epoch=-1, timestamp_ms=-1)


def _images(cluster: Cluster) -> dict[int, MetadataImage]:
    return {
        node_id: running.node.context.metadata_cache.image
        for node_id, running in sorted(cluster.running.items())
    }


def _of_controller(cluster: Cluster) -> MetadataImage:
    leader = cluster.leader
    assert leader is not None
    assert leader.node.controller_role is not None
    return leader.node.controller_role.state_machine.image
