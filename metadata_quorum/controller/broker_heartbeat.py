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
    if is_shutting_down(broker, request):
        stays = not shutdown_seen or any(each.leader == broker.broker_id for each in image.partitions())
        return None if stays else FenceBroker(**this)
    return BeginControlledShutdown(**this) if request.want_shut_down else None


def is_shutting_down(broker: BrokerRegistration, request: BrokerHeartbeatRequest) -> bool:
    """And has yet to be told that it may go."""
    return request.want_shut_down and broker.in_controlled_shutdown and not broker.fenced
