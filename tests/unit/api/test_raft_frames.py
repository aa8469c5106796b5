"""Raft frames that come to a node: of its own cluster, for itself, from whoever may act as a node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft.api.raft import handle
from kraft.net.connection import ProtocolError
from kraft.wire.raft_frame import RaftFrame, encode
from metadata_quorum.raft.messages import MalformedFrame
from metadata_quorum.security.authorizer import Authorizer

NODE = "User:node"
OURS = RaftFrame("ours", source=1, target=2, frame=b"frame")


class Received:
    """A voter that notes what it is given."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []

    def receive(self, source: int, frame: bytes) -> None:
        if source == 9:
            raise MalformedFrame("9 is not a voter of this quorum")
        self.frames.append((source, frame))


def received(body: bytes, principal: str = NODE) -> list[tuple[int, bytes]]:
    """By node 2, of the cluster `ours`, whose nodes log in as NODE."""
    node = SimpleNamespace(cluster_id="ours", node_id=2, authorizer=Authorizer(frozenset({NODE})))
    controller: Any = SimpleNamespace(node=node, raft=Received())
    key = SimpleNamespace(api_name="RaftFrame")
    ctx: Any = SimpleNamespace(principal=principal, client_host="here", api_key=key)
    assert handle(controller, ctx, memoryview(body)) == ()
    return controller.raft.frames  # type: ignore[no-any-return]


def test_a_frame_of_this_cluster_and_for_this_node_reaches_raft() -> None:
    assert received(encode(OURS)) == [(1, b"frame")]


@pytest.mark.parametrize(
    ("body", "principal", "says"),
    [
        (encode(OURS._replace(cluster_id="another")), NODE, "of cluster another"),
        (encode(OURS._replace(target=3)), NODE, "for node 3"),
        (encode(OURS._replace(source=9)), NODE, "not a voter"),
        (encode(OURS) + b"more", NODE, "malformed"),
        (encode(OURS), "User:somebody", "may not CLUSTER_ACTION"),
    ],
)
def test_any_other_ends_its_connection(body: bytes, principal: str, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        received(body, principal)
