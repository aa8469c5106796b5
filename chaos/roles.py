"""The node that `leader(all-0)` means: roles in the text of a fault, filled in when it is due.

    leader(KEY)       leads the partition
    leader            leads any partition: the first that has a leader
    follower(KEY)     of its other in-sync replicas (where there are none, of its replicas) the lowest id; the
                      active controller only where no other is left
    other(KEY)        the last one in that order
    next(KEY)         the one that would be elected: of the same the first in the order of assignment
    lagging(KEY)      the lowest id of its replicas that are not in sync
    controller        the active controller
    voter             the lowest id of the other nodes
    coordinator       coordinates the group of the clients
    coordinator(OF)   OF: `copies`, the group of those that copy; `writer`, a transactional id

KEY is a partition, "all-0". Of two followers it matters which one is the controller: a cut between that
one and the leader cuts the leader off from the controller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, Protocol

_ROLE: Final = re.compile(
    r"\b(?:(leader|follower|other|next|lagging|coordinator)\(([^)]+)\)"
    r"|(controller|voter|coordinator|leader)\b(?![-(]))"
)


READERS: Final = "readers"
"""The group of the clients, where none is named."""
COPIES: Final = "copies"
WRITER: Final = "writer"


class RoleUnfilled(LookupError):
    """No node has that role now; the sentence says which."""


class View(Protocol):
    """The cluster as an observer outside sees it now."""

    @property
    def nodes(self) -> Sequence[int]: ...

    def keys(self) -> Sequence[str]:
        """Of partitions."""
        ...

    def leader(self, key: str) -> int | None: ...

    def isr(self, key: str) -> Sequence[int]: ...

    def replicas(self, key: str) -> Sequence[int]: ...

    def controller(self) -> int | None: ...

    def coordinator(self, of: str) -> int | None: ...


def fill(text: str, view: View) -> tuple[str, str | None]:
    """The text with ids in place of roles, and the roles with their ids (None where there are none).
    Raises RoleUnfilled."""
    cast: dict[str, int] = {}

    def named(match: re.Match[str]) -> str:
        role = match[0]
        if role not in cast:
            cast[role] = _holder(match[1] or match[3], match[2] or "", view)
        return str(cast[role])

    filled = _ROLE.sub(named, text)
    return filled, ", ".join(f"{role} is {node}" for role, node in cast.items()) or None


def fill_with(text: str, nodes: Sequence[int]) -> str:
    """The text with any ids in place of roles, a different one for each: to see whether it can be read."""
    cast: dict[str, int] = {}

    def named(match: re.Match[str]) -> str:
        return str(cast.setdefault(match[0], nodes[len(cast) % len(nodes)]))

    return _ROLE.sub(named, text)


def _holder(role: str, of: str, view: View) -> int:
    candidates: dict[str, Callable[[], Sequence[int | None]]] = {
        "leader": lambda: [view.leader(key) for key in ([of] if of else view.keys())],
        "follower": lambda: _followers(of, view),
        "other": lambda: _followers(of, view)[::-1],
        "next": lambda: [node for node in view.replicas(of) if node in _followers(of, view)],
        "lagging": lambda: sorted(set(view.replicas(of)) - set(view.isr(of))),
        "coordinator": lambda: [view.coordinator(of or READERS)],
        "controller": lambda: [view.controller()],
        "voter": lambda: [node for node in sorted(view.nodes) if node != view.controller()],
    }
    for node in candidates[role]():
        if node is not None:
            return node
    raise RoleUnfilled(f"nobody is {role}({of})" if of else f"nobody is {role}")


def _followers(key: str, view: View) -> list[int]:
    leader = view.leader(key)
    if leader is None:
        return []
    in_sync = [node for node in view.isr(key) if node != leader]
    candidates = in_sync or [node for node in view.replicas(key) if node != leader]
    return sorted(candidates, key=lambda node: (node == view.controller(), node))
