"""After the heal the cluster has to recover, each part of it within its own time.

    heal -> a controller, brokers unfenced, leaders, full ISRs, every client progresses -> calm

Each bound is made from the timeouts that it depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from chaos.history import partition_of
from chaos.simulator.clients.cluster_client import ClusterClient
from chaos.simulator.clients.member import SimMember
from chaos.simulator.clients.session_reader import SimSessionReader
from chaos.simulator.cluster import Cluster
from chaos.simulator.oracles.coordinators import CoordinatorOracle
from chaos.simulator.oracles.quorum import Report
from metadata_quorum.foundation.model import NO_LEADER
from metadata_quorum.metadata.image import MetadataImage

LOOK_S: Final = 0.1
ELECTION_S: Final = 1.4
"""The longest election timeout."""
SESSION_S: Final = 9.0
"""broker.session.timeout.ms."""
LAG_S: Final = 30.0
"""replica.lag.time.max.ms."""
RECONNECT_S: Final = 5.0
"""What a node takes to start, and a lost connection attempt to be repeated."""
CONTROLLER_S: Final = 3 * ELECTION_S + RECONNECT_S
LEADERS_S: Final = SESSION_S + CONTROLLER_S
ISR_S: Final = LAG_S + 10.0 + RECONNECT_S
CLIENTS_S: Final = LEADERS_S + 15.0
"""A client notices a lost connection by a timeout of its own."""
TRANSACTIONS_S: Final = LEADERS_S + 8.0 + 2 * 10.0 + RECONNECT_S
"""The clients' timeout of a transaction; then its coordinator looks for such, and writes markers."""
READERS_S: Final = TRANSACTIONS_S + RECONNECT_S
GROUPS_S: Final = CLIENTS_S + 8.0 + RECONNECT_S
"""The partitions of a member that never came back are free after its session."""
REST_S: Final = 5.0
"""A group in which nobody was assigned anything for so long has come to rest."""
RESTING_S: Final = GROUPS_S + 12.0 + REST_S
"""A member that stands still since before the heal goes on after that, and has to join again."""


class Condition(NamedTuple):
    """Something that has to come true."""

    name: str
    bound_s: float
    missing: Callable[[], str]
    """What is not so yet; empty where all is well."""


class RecoveryOracle:
    """See the module; made at the heal."""

    def __init__(
        self,
        cluster: Cluster,
        clients: Sequence[ClusterClient],
        members: Sequence[SimMember],
        readers: Sequence[SimSessionReader],
        coordinators: CoordinatorOracle,
        report: Report,
    ) -> None:
        self._cluster = cluster
        self._clients = clients
        self._members = members
        self._readers = readers
        self._coordinators = coordinators
        self._ends = coordinators.ends()
        self._report = report
        self._healed_at = cluster.scheduler.now
        self._left = [
            Condition("controller", CONTROLLER_S, self._without_controller),
            Condition("nodes", LEADERS_S, self._not_serving),
            Condition("brokers", LEADERS_S, self._fenced),
            Condition("leaders", LEADERS_S, self._leaderless),
            Condition("isr", ISR_S, self._not_in_sync),
            Condition("coordinators", LEADERS_S, self._unloaded),
            Condition("transactions", TRANSACTIONS_S, self._open_transactions),
            Condition("clients", CLIENTS_S, self._stuck),
            Condition("readers", READERS_S, self._left_behind),
            Condition("groups", GROUPS_S, self._unread),
            Condition("rebalances", RESTING_S, self._restless),
        ]
        self._look()

    @property
    def is_calm(self) -> bool:
        """Whether all is well, or has been reported."""
        return not self._left

    def _look(self) -> None:
        scheduler = self._cluster.scheduler
        passed = scheduler.now - self._healed_at
        for condition in list(self._left):
            missing = condition.missing()
            if missing and passed > condition.bound_s:
                self._report(f"recovery: {condition.name}", f"{missing} after {passed:.1f} s")
            if not missing or passed > condition.bound_s:
                self._left.remove(condition)
        if self._left:
            scheduler.at(scheduler.now + LOOK_S, self._look)

    def _image(self) -> MetadataImage | None:
        leader = self._cluster.leader
        if leader is None or leader.node.controller_role is None:
            return None
        return leader.node.controller_role.state_machine.image

    def _without_controller(self) -> str:
        return "no active controller" if self._image() is None else ""

    def _not_serving(self) -> str:
        starting = [
            node_id
            for node_id in self._cluster.machines
            if (running := self._cluster.running.get(node_id)) is None or not running.is_ready
        ]
        return f"nodes {starting} do not serve" if starting else ""

    def _fenced(self) -> str:
        image = self._image()
        fenced = [
            broker for broker in self._cluster.shape.brokers if image is None or not image.is_active(broker)
        ]
        return f"brokers {fenced} are fenced" if fenced else ""

    def _leaderless(self) -> str:
        image = self._image()
        names = ["everything"] if image is None else list(leaderless(image))
        return f"{names} have no leader" if names else ""

    def _not_in_sync(self) -> str:
        """Before all serve, the metadata may be of a process that died and is not missed yet."""
        if starting := self._not_serving():
            return starting
        image = self._image()
        names = ["everything"] if image is None else list(under_replicated(image))
        return f"{names} are under-replicated" if names else ""

    def _unloaded(self) -> str:
        image = self._image()
        return "no controller" if image is None else self._coordinators.unloaded(image)

    def _open_transactions(self) -> str:
        """Of those that were open at the heal."""
        image = self._image()
        return "no controller" if image is None else self._coordinators.open_transactions(image, self._ends)

    def _stuck(self) -> str:
        since = self._healed_at
        stuck = [
            each.loop.name for each in self._clients if each.loop.clock.simulated(each.last_ok_s) <= since
        ]
        return f"{stuck} make no progress" if stuck else ""

    def _left_behind(self) -> str:
        """A session may forget a partition that it goes on without: each is read up to where it ended at the
        heal, or as far as it is committed."""
        image = self._image()
        if image is None:
            return "no controller"
        left = [
            f"{key} by {reader.client.loop.name}"
            for reader in self._readers
            for key in reader.keys
            if reader.positions.get(key, 0)
            < min(
                self._ends.get(partition_of(key), 0), self._coordinators.stable_end(image, partition_of(key))
            )
        ]
        return f"{left} are not read to their ends" if left else ""

    def _unread(self) -> str:
        """Each group has to read each of its partitions; a member that is given nothing is well, too."""
        left: dict[str, set[str]] = {}
        for member in self._members:
            clock = member.client.loop.clock
            read = {key for key, at_s in member.read_at_s.items() if clock.simulated(at_s) > self._healed_at}
            left[member.group] = left.get(member.group, set(member.keys)) - read
        names = [f"{key} by {group}" for group, keys in sorted(left.items()) for key in sorted(keys)]
        return f"{names} are not read" if names else ""

    def _restless(self) -> str:
        """Each group has to come to rest, when no member ends any more: each partition has one owner then."""
        groups: dict[str, list[SimMember]] = {}
        for member in self._members:
            groups.setdefault(member.group, []).append(member)
        return "; ".join(filter(None, (self._unrest(*each) for each in sorted(groups.items()))))

    def _unrest(self, group: str, members: Sequence[SimMember]) -> str:
        last_s = max(each.client.loop.clock.simulated(each.assigned_at_s) for each in members)
        if self._cluster.scheduler.now - last_s < REST_S:
            return f"{group} is rebalanced all the time"
        owned = sorted(key for each in members for key in each.owned)
        return "" if owned == sorted(members[0].keys) else f"of {group} {owned} have owners"


def leaderless(image: MetadataImage) -> Iterator[str]:
    for name, topic in sorted(image.topics_by_name.items()):
        for number, state in sorted(topic.partitions.items()):
            if state.leader == NO_LEADER:
                yield f"{name}-{number}"


def under_replicated(image: MetadataImage) -> Iterator[str]:
    for name, topic in sorted(image.topics_by_name.items()):
        for number, state in sorted(topic.partitions.items()):
            if set(state.isr) != set(state.replicas) or state.adding_replicas or state.removing_replicas:
                yield f"{name}-{number} {state.isr}"
