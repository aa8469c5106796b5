"""What a broker's heartbeat leads to (Kafka's BrokerHeartbeatManager.calculateNextBrokerState). Pure.

fenced      -> unfenced              once it has caught up with its registration and has a directory
unfenced    -> fenced                as it asks for it
unfenced    -> controlled shutdown   as it asks for it: its leaders go to others
shutting down -> fenced              once it leads nothing, and all active brokers know who leads instead
"""

from __future__ import annotations

from metadata_quorum.foundation.model import BrokerRegistration
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.protocol.commands import BeginControlledShutdown, Command, FenceBroker, UnfenceBroker
from metadata_quorum.protocol.requests import BrokerHeartbeatRequest


def next_step(
    image: MetadataImage,
    broker: BrokerRegistration,
    request: BrokerHeartbeatRequest,
    *,
    caught_up: bool,
    shutdown_seen: bool,
) -> Command[object] | None:
    """The command that the broker's state and its heartbeat call for, if any. `caught_up`: it has taken in
    its own registration. `shutdown_seen`: whether all active brokers have taken in what moved its leaders."""
    this = {"broker_id": broker.broker_id, "broker_epoch": broker.broker_epoch}
    if broker.fenced:
        stays = request.want_fence or request.want_shut_down or not caught_up or not broker.has_any_dir
        return None if stays else UnfenceBroker(**this)
    if request.want_fence:
        return FenceBroker(**this)
    if not request.want_shut_down:
        return None
    if not broker.in_controlled_shutdown:
        return BeginControlledShutdown(**this)
    if not shutdown_seen:
        return None
    leads = any(partition.leader == broker.broker_id for partition in image.partitions())
    return None if leads else FenceBroker(**this)
