"""Raft frames from the other voters: checked to be of this cluster and for this node, then given to Raft."""

from __future__ import annotations

from typing import Final

from kraft.api.authz.checks import InHandler
from kraft.api.authz.raw_requests import is_cluster_action_authorized
from kraft.api.context import ControllerContext
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow
from kraft.net.connection import Buffers, ProtocolError
from kraft.wire import raft_frame
from kraft.wire.api_keys import ApiKey


def handle(controller: ControllerContext, ctx: RequestContext, body: memoryview) -> Buffers:
    """Never replies: Raft's own messages answer each other. Raises `ProtocolError`."""
    if not is_cluster_action_authorized(controller.node, ctx):
        raise ProtocolError(f"Raft frames of {ctx.principal}, who may not CLUSTER_ACTION")
    try:
        message = raft_frame.decode(body)
        if message.cluster_id != controller.node.cluster_id:
            raise ProtocolError(f"a Raft frame of cluster {message.cluster_id}")
        if message.target != controller.node.node_id:
            raise ProtocolError(f"a Raft frame for node {message.target}")
        controller.raft.receive(message.source, message.frame)
    except ValueError as error:
        raise ProtocolError(f"a malformed Raft frame: {error}") from None
    return ()


ROWS: Final = (
    ApiRow(
        ApiKey.RAFT_FRAME,
        (raft_frame.RAFT_API_VERSION, raft_frame.RAFT_API_VERSION),
        (InHandler("ClusterAction on Cluster"),),
        raw_controller=handle,
        internal=True,
    ),
)
