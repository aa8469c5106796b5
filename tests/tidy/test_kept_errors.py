"""An error that is kept, in a list, an attribute or a future, is `detached` from the frames it came through.

They have the request in hand, and one of them what keeps the error: only the collector of cycles frees it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from tests.tidy.sources import nodes_of, python_files

SERVING: Final = (
    "kraft/api", "kraft/broker", "kraft/net", "kraft/peers", "data_plane/coordinator",
    "data_plane/replication", "fetch", "metadata_quorum/controller", "metadata_quorum/decisions",
)  # fmt: skip
"""Where requests are in hand."""
KEEPERS: Final = frozenset(
    {"add", "append", "appendleft", "extend", "fromkeys", "partial", "set_exception", "setdefault"}
)
CONTAINERS: Final = (ast.Tuple, ast.List, ast.Dict, ast.Set, ast.IfExp, ast.BoolOp, ast.Starred, ast.keyword)
MAY_KEEP_THEM: Final = {
    "data_plane/replication/offset_lookup.py": "`answer` reports it, then detaches it",
    "kraft/api/fetch.py": "`_note` reports it, then detaches it",
    "kraft/api/request_cost.py": "until it is thrown into the coroutine, and no longer",
    "kraft/net/acceptor.py": "a family of addresses that the machine lacks; there is no request yet",
    "kraft/net/delayed_reply.py": "a bug of ours, which is reported and ends the connection",
    "kraft/peers/blocking_client.py": "of the command line: no node runs it",
}


def _is_kept(name: ast.Name, parents: dict[ast.AST, ast.AST]) -> bool:
    around = parents[name]
    while isinstance(around, CONTAINERS):
        around = parents[around]
    if isinstance(around, ast.Call):
        called = around.func
        return isinstance(called, ast.Attribute | ast.Name) and (
            (called.attr if isinstance(called, ast.Attribute) else called.id) in KEEPERS
        )
    return isinstance(around, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.Return | ast.Yield)


def kept_errors(file: str) -> Iterator[int]:
    """The lines in which a handler keeps its error as it is."""
    for handler in nodes_of(file):
        if isinstance(handler, ast.ExceptHandler) and handler.name is not None:
            parents = {child: node for node in ast.walk(handler) for child in ast.iter_child_nodes(node)}
            for node in parents:
                if isinstance(node, ast.Name) and node.id == handler.name and _is_kept(node, parents):
                    yield node.lineno


def test_who_keeps_an_error_detaches_it() -> None:
    keepers = {file for file in python_files(*SERVING) if any(kept_errors(file))}
    assert keepers == MAY_KEEP_THEM.keys()
