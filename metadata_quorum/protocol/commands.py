"""Commands: what the active controller proposes to Raft.

A command is a request: it is decided when it is applied, on committed state, and may be refused.
It carries everything that is not in that state: uuids, random choices; the clock is in its stamps.

Path of the data: controller/controller.py -> stamped_command.py -> Raft -> state_machine.py -> decisions/.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Generic, TypeVar

from metadata_quorum.foundation.codec import (
    Bool,
    Float64,
    Int8,
    Int16,
    Int32,
    Int32s,
    Int64,
    NullableInt32s,
    NullableString,
    SchemaRegistry,
    String,
    Tag,
    Uuid,
    Uuids,
)
from metadata_quorum.metadata.records import (
    AccessControlEntryRecord,
    EndpointField,
    FeatureField,
    QuotaEntity,
    UserScramCredentialRecord,
)
from metadata_quorum.protocol.replies import (
    AclResult,
    BrokerRegistered,
    Claimed,
    ConfigResult,
    DirectoryResult,
    Done,
    ElectionResult,
    IsrResult,
    ProducerIdBlock,
    QuotaResult,
    ReassignmentResult,
    TopicResult,
    UserResult,
)

ReplyT_co = TypeVar("ReplyT_co", covariant=True)


class Command(Generic[ReplyT_co]):
    """Anything that can be proposed. Its decision replies with a `ReplyT_co`, or the command is `Refused`."""

    __slots__ = ()


COMMANDS: Final = SchemaRegistry("command")


# -- the controller itself ------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevel:
    """A feature to finalize at bootstrap."""

    name: String
    level: Int16


@COMMANDS.enter(1)
@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLeadership(Command[Claimed]):
    """First command of a term. On an empty cluster it also writes the bootstrap records."""

    leader_id: Int32
    voters: Int32s
    bootstrap_features: tuple[FeatureLevel, ...] = ()
    bootstrap_min_insync_replicas: Int32 = 1
    bootstrap_users: Annotated[tuple[UserScramCredentialRecord, ...], Tag(0)] = ()
    """Users that exist from the beginning, since nobody could log in to create them."""
    decoy_secret: Annotated[String, Tag(1)] = ""
    """Drawn by the proposer; the first one counts (security/scram.py)."""


@COMMANDS.enter(2)
@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterController(Command[Done]):
    """A controller registers its endpoints and features."""

    controller_id: Int32
    incarnation_id: Uuid
    endpoints: tuple[EndpointField, ...] = ()
    features: tuple[FeatureField, ...] = ()


# -- brokers ----------------------------------------------------------------------


@COMMANDS.enter(10)
@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBroker(Command[BrokerRegistered]):
    """A broker's process has started. `replaces_epoch`: the registration whose session has ended, as the
    proposer knows; any other one is still in use."""

    broker_id: Int32
    incarnation_id: Uuid
    endpoints: tuple[EndpointField, ...] = ()
    features: tuple[FeatureField, ...] = ()
    rack: NullableString = None
    log_dirs: Uuids = ()
    previous_broker_epoch: Int64 = -1
    replaces_epoch: Int64 = -1


@COMMANDS.enter(11)
@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBroker(Command[Done]):
    """Remove a broker from the metadata."""

    broker_id: Int32


@COMMANDS.enter(12)
@dataclass(frozen=True, slots=True, kw_only=True)
class FenceBroker(Command[Done]):
    """The broker's session has ended, or it asked to be fenced."""

    broker_id: Int32
    broker_epoch: Int64


@COMMANDS.enter(13)
@dataclass(frozen=True, slots=True, kw_only=True)
class UnfenceBroker(Command[Done]):
    """The broker has caught up with its own registration."""

    broker_id: Int32
    broker_epoch: Int64


@COMMANDS.enter(14)
@dataclass(frozen=True, slots=True, kw_only=True)
class BeginControlledShutdown(Command[Done]):
    """Take the broker out of every ISR and leadership before it stops."""

    broker_id: Int32
    broker_epoch: Int64


@COMMANDS.enter(15)
@dataclass(frozen=True, slots=True, kw_only=True)
class FailLogDirs(Command[Done]):
    """Directories of the broker are offline; some of them may have been reported before."""

    broker_id: Int32
    broker_epoch: Int64
    offline: Uuids


# -- topics -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A configuration value."""

    name: String
    value: NullableString = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Replicas that the caller chose for one partition."""

    partition: Int32
    broker_ids: Int32s


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; partitions and replication factor are already resolved from -1, unless
    `assignments` names the replicas."""

    name: String
    topic_id: Uuid
    partitions: Int32
    replication_factor: Int16
    assignments: tuple[Assignment, ...] = ()
    configs: tuple[ConfigEntry, ...] = ()
    placement_start: Int32 = 0
    """A random number: where the round-robin over the brokers begins."""


@COMMANDS.enter(20)
@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopics(Command[tuple[TopicResult, ...]]):
    """Each topic is decided by itself."""

    topics: tuple[NewTopic, ...]


@COMMANDS.enter(21)
@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopics(Command[tuple[TopicResult, ...]]):
    """By id; the proposer resolved the names."""

    topic_ids: Uuids


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartitions:
    """Grow a topic to `count` partitions; `assignments` has one entry per new partition, or none."""

    name: String
    count: Int32
    assignments: tuple[Assignment, ...] = ()
    placement_start: Int32 = 0


@COMMANDS.enter(22)
@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitions(Command[tuple[TopicResult, ...]]):
    """Each topic is decided by itself."""

    topics: tuple[NewPartitions, ...]


# -- partitions ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrMember:
    """A member of the proposed ISR; epoch -1 skips the check of its incarnation."""

    broker_id: Int32
    broker_epoch: Int64 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """Compare-and-set on both epochs."""

    topic_id: Uuid
    partition: Int32
    leader_epoch: Int32
    partition_epoch: Int32
    isr: tuple[IsrMember, ...]
    leader_recovery_state: Int8 = 0


@COMMANDS.enter(30)
@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitions(Command[tuple[IsrResult, ...]]):
    """A leader's proposals for the ISRs of its partitions; each is decided by itself."""

    broker_id: Int32
    broker_epoch: Int64
    changes: tuple[IsrChange, ...]


ELECTION_PREFERRED: Final = 0
ELECTION_UNCLEAN: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionName:
    """A partition by name."""

    topic: String
    partition: Int32


@COMMANDS.enter(31)
@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeaders(Command[tuple[ElectionResult, ...]]):
    """Elect in the partitions named, or in all."""

    election_type: Int8
    partitions: tuple[PartitionName, ...] = ()
    all_partitions: Annotated[Bool, Tag(0)] = False
    """True: the reply leaves out partitions that need no election."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryAssignment:
    """The directory in which the broker keeps a replica."""

    topic_id: Uuid
    partition: Int32
    directory: Uuid


@COMMANDS.enter(32)
@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicasToDirs(Command[tuple[DirectoryResult, ...]]):
    """A broker reports the directories of its replicas; each is decided by itself."""

    broker_id: Int32
    broker_epoch: Int64
    assignments: tuple[DirectoryAssignment, ...]
    asks_for_origin: Annotated[Bool, Tag(0)] = False
    """A replica that lay in a directory which is gone is new in the other one, and no longer eligible. False:
    it was not asked where it lay."""
    may_be_unclean: Annotated[Bool, Tag(1)] = False
    """Where the topic allows it, a leader is elected uncleanly rather than none. False: none was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """New replicas for a partition; None cancels the reassignment in progress."""

    topic: String
    partition: Int32
    replicas: NullableInt32s = None


@COMMANDS.enter(33)
@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReassignments(Command[tuple[ReassignmentResult, ...]]):
    """Each partition is decided by itself."""

    reassignments: tuple[Reassignment, ...]
    allow_replication_factor_change: Bool = True
    may_be_unclean: Annotated[Bool, Tag(0)] = False
    """Where the topic allows it, a leader is elected uncleanly rather than none. False: none was."""


# -- configuration, producer ids ------------------------------------------------------

CONFIG_SET: Final = 0
CONFIG_DELETE: Final = 1
CONFIG_APPEND: Final = 2
CONFIG_SUBTRACT: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigOperation:
    """One step of IncrementalAlterConfigs."""

    name: String
    operation: Int8
    value: NullableString = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """Operations on one resource; all of them or none."""

    resource_type: Int8
    resource_name: String
    operations: tuple[ConfigOperation, ...]


@COMMANDS.enter(40)
@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigs(Command[tuple[ConfigResult, ...]]):
    """Each resource is decided by itself."""

    changes: tuple[ConfigChange, ...]
    controllers: Annotated[Int32s, Tag(0)] = ()
    """Nodes that have configurations though they are no brokers. None: those of controllers were refused."""
    bounds_lists: Annotated[Bool, Tag(1)] = False  # items are appended once, and no more than a string holds


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReplacement:
    """All values of one resource."""

    resource_type: Int8
    resource_name: String
    configs: tuple[ConfigEntry, ...]


@COMMANDS.enter(41)
@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigs(Command[tuple[ConfigResult, ...]]):
    """What is not named is deleted."""

    resources: tuple[ConfigReplacement, ...]
    controllers: Annotated[Int32s, Tag(0)] = ()  # as of `IncrementalAlterConfigs`


@COMMANDS.enter(50)
@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIds(Command[ProducerIdBlock]):
    """Allocate a block of producer ids to a broker."""

    broker_id: Int32
    broker_epoch: Int64


# -- security ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramDeletion:
    """Delete a user's credential."""

    name: String
    mechanism: Int8


@COMMANDS.enter(60)
@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUserScram(Command[tuple[UserResult, ...]]):
    """Each user is decided by itself."""

    deletions: tuple[ScramDeletion, ...] = ()
    upsertions: tuple[UserScramCredentialRecord, ...] = ()


@COMMANDS.enter(61)
@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAcls(Command[tuple[AclResult, ...]]):
    """Each is decided by itself; one that exists already stays as it is, under its own id."""

    acls: tuple[AccessControlEntryRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Selects access control entries: null or ANY matches all."""

    resource_type: Int8
    resource_name: NullableString
    pattern_type: Int8
    principal: NullableString
    host: NullableString
    operation: Int8
    permission_type: Int8


@COMMANDS.enter(62)
@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAcls(Command[tuple[AclResult, ...]]):
    """All that any of the filters matches."""

    filters: tuple[AclFilter, ...]


# -- features ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdate:
    """The new level of a feature; `upgrade_type` is what the client allows."""

    name: String
    level: Int16
    upgrade_type: Int8 = 1


@COMMANDS.enter(80)
@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeatures(Command[Done]):
    """All of them or none. `supported`: what the proposer, `controller_id`, can run."""

    controller_id: Int32
    updates: tuple[FeatureUpdate, ...]
    supported: tuple[FeatureField, ...]
    min_insync_replicas: Annotated[Int32, Tag(0)] = 0
    """Of the proposer: the cluster's, where ELR is turned on and the cluster has none. 0: ELR was turned on
    without a look at it."""
    takes_leaderless: Annotated[Bool, Tag(1)] = False
    """Where ELR is turned on, the last members of an ISR that has no leader become eligible leaders. False:
    they stayed in the ISR."""


# -- quotas -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaOperation:
    """Set one quota, or remove it."""

    key: String
    value: Float64 = 0.0
    remove: Bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaAlteration:
    """Operations on one entity; all of them or none."""

    entity: tuple[QuotaEntity, ...]
    operations: tuple[QuotaOperation, ...]


@COMMANDS.enter(70)
@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotas(Command[tuple[QuotaResult, ...]]):
    """Each entity is decided by itself."""

    alterations: tuple[QuotaAlteration, ...]
