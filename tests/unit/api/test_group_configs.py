"""A group's values must fit together, also where they are changed at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from data_plane.coordinator.groups.consumer.rules import HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from kraft.api import configs
from kraft.api.row import Response
from metadata_quorum.decisions import configs as decisions
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE
from metadata_quorum.protocol import commands as c
from metadata_quorum.protocol.commands import CONFIG_SET
from metadata_quorum.protocol.replies import ConfigResult
from tests.support.contexts import controller_context, node_context

BOUNDS = SimpleNamespace(
    group_consumer_session_timeout_ms=45_000,
    group_consumer_min_session_timeout_ms=1,
    group_consumer_max_session_timeout_ms=60_000,
    group_consumer_heartbeat_interval_ms=5_000,
    group_consumer_min_heartbeat_interval_ms=1,
    group_consumer_max_heartbeat_interval_ms=60_000,
)


class Quorum:
    """Decides as the state machine does, some turns of the loop later."""

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE

    async def incremental_alter_configs(
        self, changes: Sequence[c.ConfigChange], *, validate_only: bool
    ) -> tuple[ConfigResult, ...]:
        return await self._decided(
            decisions.incremental_alter_configs, c.IncrementalAlterConfigs(changes=tuple(changes))
        )

    async def alter_configs(
        self, resources: Sequence[c.ConfigReplacement], *, validate_only: bool
    ) -> tuple[ConfigResult, ...]:
        return await self._decided(decisions.alter_configs, c.AlterConfigs(resources=tuple(resources)))

    async def _decided(self, decide: Any, command: Any) -> tuple[ConfigResult, ...]:
        for _ in range(3):
            await asyncio.sleep(0)
        decision = decide(self.image, command)
        delta = MetadataDelta(self.image)
        for record in decision.records:
            delta.replay(record)
        self.image = delta.apply()
        results: tuple[ConfigResult, ...] = decision.reply
        return results


def change(**values: str) -> Any:
    named = [
        SimpleNamespace(name=name.replace("_", "."), value=value, config_operation=CONFIG_SET)
        for name, value in values.items()
    ]
    group = SimpleNamespace(resource_type=ResourceType.GROUP, resource_name="g", configs=named)
    return SimpleNamespace(resources=[group], validate_only=False)


def answers(*, replaces: bool) -> tuple[list[int], Mapping[str, str]]:
    """To two changes at the same time, each of which fits the values of before; the values after them."""

    async def ask() -> tuple[list[int], Mapping[str, str]]:
        quorum: Any = Quorum()
        node = node_context(asyncio.get_running_loop(), config=BOUNDS)
        controller: Any = controller_context(node, quorum_controller=quorum)
        shorter = change(consumer_session_timeout_ms="10000")
        slower = change(consumer_heartbeat_interval_ms="20000")
        first = configs.handle_alter if replaces else configs.handle_incremental_alter
        ctx: Any = None
        found: list[Response] = await asyncio.gather(
            first(controller, ctx, shorter), configs.handle_incremental_alter(controller, ctx, slower)
        )
        codes = [answer["responses"][0]["error_code"] for answer in found]
        return codes, quorum.image.config(ResourceType.GROUP, "g")

    return asyncio.run(ask())


def test_two_changes_of_a_group_at_the_same_time_fit_together() -> None:
    for replaces in (False, True):
        codes, values = answers(replaces=replaces)
        assert codes == [ErrorCode.NONE, ErrorCode.INVALID_CONFIG]
        assert values == {SESSION_TIMEOUT: "10000"}
        assert HEARTBEAT_INTERVAL not in values
