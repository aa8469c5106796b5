"""A simulated operator: upgrades node after node to this version, then raises the finalized levels.

    lower_levels -> upgrade: SIGTERM, it serves again, the next one … -> the levels of a new cluster

The levels are lowered before anything else happens: as if the cluster had been made by an older version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chaos.simulator.clients.cluster_client import ClusterClient
from chaos.simulator.cluster import Cluster
from chaos.simulator.software import THIS
from kraft.wire.api_keys import ApiKey
from metadata_quorum.decisions.features import OLDEST_SAME_RECORDS, UpgradeType
from metadata_quorum.foundation.features import BOOTSTRAP_FEATURES, ELR_VERSION, METADATA_VERSION

LOOK_S: Final = 0.1
RETRY_S: Final = 0.5
OLD_LEVELS: Final = {METADATA_VERSION: OLDEST_SAME_RECORDS, ELR_VERSION: 0}
NEW_LEVELS: Final = {name: BOOTSTRAP_FEATURES[name] for name in OLD_LEVELS}


class SimOperator:
    """See the module."""

    def __init__(self, client: ClusterClient, cluster: Cluster) -> None:
        self.client = client
        self._cluster = cluster

    async def lower_levels(self) -> None:
        """As if an older version had formatted the cluster."""
        await self._update(OLD_LEVELS, UpgradeType.SAFE_DOWNGRADE)

    async def upgrade(self) -> None:
        """Restarts, then levels, while clients work and faults strike."""
        for node_id in self._cluster.shape.nodes:
            await self._restart(node_id)
        await self._update(NEW_LEVELS, UpgradeType.UPGRADE)
        self._cluster.story.visit("upgrade")

    async def _restart(self, node_id: int) -> None:
        """With this version. A node that has stopped is started by its supervisor; a crash in between is a
        restart as well."""
        self._cluster.software[node_id] = THIS
        running = self._cluster.running
        before = running.get(node_id)
        self._cluster.stop(node_id)
        while (now := running.get(node_id)) is None or now is before or not now.is_ready:
            await self.client.pause(LOOK_S)

    async def _update(self, levels: Mapping[str, int], upgrade_type: UpgradeType) -> None:
        updates = [
            {"feature": name, "max_version_level": level, "upgrade_type": int(upgrade_type)}
            for name, level in levels.items()
        ]
        fields = {"timeout_ms": 5000, "feature_updates": updates, "validate_only": False}
        while True:
            try:
                answer = await self.client.request_any(ApiKey.UPDATE_FEATURES, fields)
            except OSError:
                await self.client.pause(RETRY_S)
                continue
            if not answer.error_code:
                self.client.last_ok_s = self.client.loop.time()
                return
            await self.client.pause(RETRY_S)
