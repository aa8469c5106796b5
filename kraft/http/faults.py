"""The panel of faults: links are cut and slowed, nodes killed, paused and started, by the command line's own
commands in a process of their own.

    {"action": "cut", "link": "2>1"} -> kraft chaos link cut 2>1 --dir DIR
    {"action": "kill", "node": 2}    -> kraft node kill 2 --dir DIR

Only of a cluster whose links are chaos links (DIR/links.json): nobody breaks another by mistake.
"""

from __future__ import annotations

import asyncio
import json
import re
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from kraft import own_packages
from kraft.api.context import NodeContext
from kraft.config.node_config import Config
from kraft.http.refused import Refused
from metadata_quorum.foundation.blocking import MayBlock

LINKS_FILE: Final = "links.json"
PATIENCE_S: Final = 60.0
SAID_BYTES: Final = 2000
OF_LINKS: Final = ("cut", "slow", "heal")
OF_NODES: Final = ("kill", "pause", "resume", "start")
SLOW: Final = "200ms"

_LINK: Final = re.compile("[0-9]{1,4}[>-][0-9]{1,4}")

Json = dict[str, Any]


async def state_of_faults(node: NodeContext) -> Json | None:
    """What can be broken; None where nothing can be."""
    directory = _directory(node.config)
    if directory is None:
        return None
    nodes = await node.blocking(partial(_nodes, directory))
    return None if nodes is None else {"nodes": nodes, "of_links": OF_LINKS, "of_nodes": OF_NODES}


def _nodes(directory: Path, _: MayBlock) -> list[int] | None:
    try:
        return list(map(int, json.loads((directory / LINKS_FILE).read_text())["nodes"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


async def run_fault(node: NodeContext, wanted: Mapping[str, Any]) -> Json:
    """What the command says. Raises `Refused`."""
    directory = _directory(node.config)
    if directory is None or await state_of_faults(node) is None:
        raise Refused(404, "this cluster has no chaos links: `kraft chaos up --console-writes` makes one")
    command = own_packages.python("kraft", *arguments(wanted, node.node_id), "--dir", str(directory))
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, stderr=asyncio.subprocess.STDOUT, env=dict(own_packages.own_environment())
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    said = output[-SAID_BYTES:].decode(errors="replace").strip()
    if process.returncode:
        raise Refused(409, said or f"the command ended with code {process.returncode}")
    return {"said": said}


def arguments(wanted: Mapping[str, Any], own_id: int) -> tuple[str, ...]:
    """The arguments of the command line for a fault. Raises `Refused` for anything else."""
    action, link, number = wanted.get("action"), wanted.get("link"), wanted.get("node")
    if action == "list":
        return "chaos", "link", "list"
    if action == "heal" and link is None:
        return "chaos", "link", "heal"
    if action in OF_LINKS:
        if not isinstance(link, str) or not _LINK.fullmatch(link):
            raise Refused(400, "link is to be 2>1, or 2-1 for both ways")
        return "chaos", "link", str(action), link, *([SLOW] if action == "slow" else [])
    if action in OF_NODES:
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise Refused(400, "node is to be a node's id")
        if number == own_id:
            raise Refused(409, f"node {own_id} serves this page: break it from another node's")
        return "node", str(action), str(number)
    raise Refused(400, f"action is one of {', '.join((*OF_LINKS, *OF_NODES, 'list'))}")


def _directory(config: Config) -> Path | None:
    where = config.kraft_http_faults_dir
    return Path(where) if where is not None and config.kraft_http_writes else None
