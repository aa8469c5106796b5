"""Replies of decisions, close to the responses of Kafka's APIs.

Path of the data: decisions -> state_machine.apply -> Raft's result -> controller.py -> api handlers.
`error` is NONE where it went well; `message` is for a person.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID
from metadata_quorum.metadata.records import AccessControlEntryRecord


@dataclass(frozen=True, slots=True)
class Refused:
    """The whole command was refused; nothing changed."""

    error: ErrorCode
    message: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has no reply of its own was applied."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A term has its controller."""

    leader_id: int


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """The epoch that the broker sends from now on."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatReply:
    """The state of the broker, after its heartbeat."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


@dataclass(frozen=True, slots=True)
class TopicResult:
    """One topic of CreateTopics, CreatePartitions or DeleteTopics."""

    name: str
    topic_id: UUID = ZERO_UUID
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    partitions: int = -1
    replication_factor: int = -1


@dataclass(frozen=True, slots=True)
class IsrResult:
    """One partition of AlterPartition: its committed state after the command."""

    topic_id: UUID
    partition: int
    error: ErrorCode = ErrorCode.NONE
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = -1


@dataclass(frozen=True, slots=True)
class DirectoryResult:
    """One replica of AssignReplicasToDirs."""

    topic_id: UUID
    partition: int
    directory: UUID
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """One partition of ElectLeaders."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class ReassignmentResult:
    """One partition of AlterPartitionReassignments."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class ConfigResult:
    """One resource of AlterConfigs or IncrementalAlterConfigs."""

    resource_type: int
    resource_name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class UserResult:
    """One user of AlterUserScramCredentials."""

    user: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class AclResult:
    """One entry of CreateAcls, or one filter of DeleteAcls with what it deleted."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    deleted: tuple[AccessControlEntryRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Producer ids `first` to `first + size - 1` belong to the broker that requested them."""

    first: int
    size: int


@dataclass(frozen=True, slots=True)
class QuotaResult:
    """One entity of AlterClientQuotas."""

    entity: tuple[tuple[str, str | None], ...]
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


Results = (
    tuple[TopicResult, ...]
    | tuple[IsrResult, ...]
    | tuple[DirectoryResult, ...]
    | tuple[ElectionResult, ...]
    | tuple[ReassignmentResult, ...]
    | tuple[ConfigResult, ...]
    | tuple[UserResult, ...]
    | tuple[AclResult, ...]
    | tuple[QuotaResult, ...]
)
"""The reply to a command with several items: one result each, in their order."""

Reply = Refused | Done | Claimed | BrokerRegistered | BrokerHeartbeatReply | ProducerIdBlock | Results
