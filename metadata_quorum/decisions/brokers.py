"""Brokers and controllers: registration, fencing, controlled shutdown; and the claim of a new controller.

Way of a broker:  register (fenced) -> unfence -> [begin controlled shutdown] -> fence -> register ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from metadata_quorum.decisions.decision import Decision, check_broker_epoch
from metadata_quorum.decisions.elections import MIN_INSYNC_REPLICAS, broker_leaves, broker_returns
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.features import ELR_VERSION
from metadata_quorum.foundation.model import (
    LOST_DIR,
    BrokerRegistration,
    Endpoint,
    ResourceType,
    SecurityProtocol,
)
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from metadata_quorum.protocol.commands import (
    BeginControlledShutdown,
    ClaimLeadership,
    FenceBroker,
    RegisterBroker,
    RegisterController,
    UnfenceBroker,
    UnregisterBroker,
)
from metadata_quorum.protocol.replies import BrokerRegistered, Claimed
from metadata_quorum.protocol.requests import RegisterBrokerRequest
from metadata_quorum.security.scram import decoy_secret_of, decoy_secret_record

FENCED, UNFENCED = 1, -1
"""BrokerRegistrationChangeRecord.fenced"""

_PROTOCOLS: Final = frozenset(SecurityProtocol)


def claim(image: MetadataImage, command: ClaimLeadership) -> Decision:
    """A term begins. The very first one also finalizes the features, as Kafka's format tool does."""
    decision = Decision(reply=Claimed(command.leader_id))
    if command.decoy_secret and not decoy_secret_of(image):
        decision.records.append(decoy_secret_record(command.decoy_secret))
    if image.features:
        return decision
    levels = {f.name: f.level for f in command.bootstrap_features}
    # Features first: readers interpret all other records by them.
    decision.records[:0] = [
        FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()
    ]
    decision.records += command.bootstrap_users
    if levels.get(ELR_VERSION, 0) >= 1:
        # ELR is decided by committed values only, so the cluster's default must be one.
        decision.records.append(
            ConfigRecord(
                resource_type=ResourceType.BROKER,
                resource_name="",
                name=MIN_INSYNC_REPLICAS,
                value=str(command.bootstrap_min_insync_replicas),
            )
        )
    return decision


def register_controller(image: MetadataImage, command: RegisterController) -> Decision:
    """A controller announces its endpoints; repeated by the same incarnation it changes nothing."""
    known = image.controllers.get(command.controller_id)
    if known is not None and known.incarnation_id == command.incarnation_id:
        return Decision()
    record = RegisterControllerRecord(
        controller_id=command.controller_id,
        incarnation_id=command.incarnation_id,
        end_points=command.endpoints,
        features=command.features,
    )
    return Decision([record])


def register_broker(image: MetadataImage, command: RegisterBroker) -> Decision:
    """A new incarnation starts fenced, with the offset of its record as epoch; the same one keeps
    epoch and state. An incarnation that is still in use is not replaced. Raises `BrokerError`."""
    known = image.brokers.get(command.broker_id)
    same = known is not None and known.incarnation_id == command.incarnation_id
    if known is not None and not same and known.broker_epoch != command.replaces_epoch:
        raise BrokerError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker is registered with broker id {command.broker_id} and its session is valid. "
            "If the broker was recently restarted this should resolve itself once that session is over.",
        )
    _check_endpoints(command)
    _check_features(image, command)
    _check_directories(image, command)
    epoch = known.broker_epoch if known is not None and same else image.offset + 1
    decision = Decision(reply=BrokerRegistered(epoch))
    decision.records.append(
        RegisterBrokerRecord(
            broker_id=command.broker_id,
            incarnation_id=command.incarnation_id,
            broker_epoch=epoch,
            end_points=command.endpoints,
            features=command.features,
            rack=command.rack,
            fenced=known.fenced if known is not None and same else True,
            in_controlled_shutdown=known.in_controlled_shutdown if known is not None and same else False,
            log_dirs=command.log_dirs,
        )
    )
    if not same:
        previous = -1 if known is None else known.broker_epoch
        # A broker that stopped cleanly sends its last epoch; any other lost what was not on its disks.
        unclean = known is None or command.previous_broker_epoch != previous
        decision.records += broker_leaves(image, command.broker_id, unclean_restart=unclean)
    return decision


def check_protocols(endpoints: Sequence[Endpoint]) -> None:
    """For the controller, before it proposes a registration: decisions on commands that are in the log stay
    as they are. A broker or tool of Apache Kafka stops at a record whose security protocol it does not know.
    Raises `BrokerError`."""
    for each in endpoints:
        if each.security_protocol not in _PROTOCOLS:
            why = f"Unknown security protocol {each.security_protocol} in listener {each.name}"
            raise BrokerError(ErrorCode.INVALID_REGISTRATION, why)


def whole_run(known: BrokerRegistration | None, request: RegisterBrokerRequest) -> int:
    """For the controller, before it proposes a registration: the epoch of the broker's last run, of which it
    lacks nothing; else -1. What lay in a log directory that is gone nobody may know, however cleanly the
    broker was stopped. It says so itself, if it was not stopped by another version, and is not Kafka's."""
    if known is not None and not {*known.log_dirs} - {LOST_DIR} <= {*request.log_dirs}:
        return -1
    return request.previous_broker_epoch


def _check_endpoints(command: RegisterBroker) -> None:
    names = [endpoint.name for endpoint in command.endpoints]
    if not names:
        raise BrokerError(ErrorCode.INVALID_REGISTRATION, "The broker names no listener")
    if len(set(names)) != len(names):
        raise BrokerError(ErrorCode.INVALID_REGISTRATION, "The broker names a listener twice")


def _check_features(image: MetadataImage, command: RegisterBroker) -> None:
    supported = {f.name: f for f in command.features}
    if not supported:
        return  # a broker without features is accepted
    for name, level in image.features.items():
        feature = supported.get(name)
        if level and (
            feature is None or not feature.min_supported_version <= level <= feature.max_supported_version
        ):
            low, high = (feature.min_supported_version, feature.max_supported_version) if feature else (0, 0)
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of "
                f"{name}. The broker wants a version between {low} and {high}, inclusive.",
            )


def _check_directories(image: MetadataImage, command: RegisterBroker) -> None:
    ids = command.log_dirs
    distinct = frozenset(ids)
    if len(distinct) != len(ids):
        raise BrokerError(ErrorCode.INVALID_REGISTRATION, "A log directory id is repeated")
    reserved = [d for d in ids if d.int < _RESERVED_DIRECTORIES]
    if reserved:
        raise BrokerError(ErrorCode.INVALID_REGISTRATION, f"Reserved log directory id {reserved[0]}")
    for broker in image.brokers.values():
        taken = [directory for directory in broker.log_dirs if directory in distinct]
        if taken and broker.broker_id != command.broker_id:
            raise BrokerError(
                ErrorCode.INVALID_REGISTRATION,
                f"Log directory id {taken[0]} is already registered by broker {broker.broker_id}",
            )


_RESERVED_DIRECTORIES = 100


def unregister_broker(image: MetadataImage, command: UnregisterBroker) -> Decision:
    """Remove a broker. Its replicas stay assigned to its id; it leads nothing and is in no ISR. Raises
    `BrokerError`, BROKER_ID_NOT_REGISTERED."""
    broker = image.brokers.get(command.broker_id)
    if broker is None:
        raise BrokerError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {command.broker_id} is not currently registered"
        )
    decision = Decision()
    decision.records += broker_leaves(image, broker.broker_id, unclean_restart=False)
    decision.records.append(
        UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch)
    )
    return decision


def fence_broker(image: MetadataImage, command: FenceBroker) -> Decision:
    """Take it out of every ISR, and elect new leaders for what it led."""
    broker = check_broker_epoch(image, command.broker_id, command.broker_epoch)
    return fence(image, broker)


def fence(image: MetadataImage, broker: BrokerRegistration) -> Decision:
    """Fence the broker, if it is not fenced yet."""
    if broker.fenced:
        return Decision()
    decision = Decision([_change(broker.broker_id, broker.broker_epoch, fenced=FENCED)])
    decision.records += broker_leaves(image, broker.broker_id, unclean_restart=False)
    return decision


def unfence_broker(image: MetadataImage, command: UnfenceBroker) -> Decision:
    """The broker may lead and join ISRs again; what has no leader may have one now."""
    broker = check_broker_epoch(image, command.broker_id, command.broker_epoch)
    if not broker.fenced or not broker.has_any_dir:
        return Decision()
    decision = Decision([_change(command.broker_id, command.broker_epoch, fenced=UNFENCED)])
    if not broker.in_controlled_shutdown:
        decision.records += broker_returns(image, broker.broker_id)
    return decision


def begin_controlled_shutdown(image: MetadataImage, command: BeginControlledShutdown) -> Decision:
    """Move all its leaderships away; from here on the broker can join no ISR."""
    broker = check_broker_epoch(image, command.broker_id, command.broker_epoch)
    if broker.in_controlled_shutdown:
        return Decision()
    record = BrokerRegistrationChangeRecord(
        broker_id=command.broker_id, broker_epoch=command.broker_epoch, in_controlled_shutdown=1
    )
    decision = Decision([record])
    decision.records += broker_leaves(image, broker.broker_id, unclean_restart=False)
    return decision


def _change(broker_id: int, broker_epoch: int, *, fenced: int) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, fenced=fenced)
