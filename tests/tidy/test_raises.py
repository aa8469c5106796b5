"""A public function that raises an error of its own names it in its docstring: "Raises `X`."

By its class, a base of it, or (a `BrokerError`) by its error code. Looked at is what the function itself
raises, not what those it calls do; an error that it catches, or raises again, is not its own.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from metadata_quorum.foundation.errors import ErrorCode
from tests.tidy.sources import FLOORS, nodes_of, python_files, tree_of

Function = ast.FunctionDef | ast.AsyncFunctionDef

BUGS: Final = frozenset({"AssertionError", "InvariantViolation", "NotImplementedError"})
"""Nobody expects them."""
OF_COMMANDS: Final = frozenset({"CliError", "BrokerError", "Exit"})
"""A command's docstring is its help. kraft/cli/errors.py makes a line and an exit code of what it raises."""
OF_HANDLERS: Final = frozenset({"BrokerError"})
"""The handler of an API: kraft/api/dispatch.py makes the response's error of it."""


def _last(expression: ast.expr) -> str:
    return ast.unparse(expression).rpartition(".")[2]


@cache
def _bases() -> Mapping[str, tuple[str, ...]]:
    """Of every class of the house."""
    return {
        node.name: tuple(_last(base) for base in node.bases)
        for file in python_files(*FLOORS)
        for node in tree_of(file).body
        if isinstance(node, ast.ClassDef)
    }


def _family(name: str) -> Iterator[str]:
    """An error's class and all its bases."""
    known = getattr(builtins, name, None)
    if isinstance(known, type):
        yield from (base.__name__ for base in known.__mro__ if base not in (object, BaseException, Exception))
        return
    yield name
    for base in _bases().get(name, ()):
        yield from _family(base)


def _returns(file: str) -> Iterator[tuple[str, str]]:
    """Functions, with the class that they return."""
    for node in nodes_of(file):
        if isinstance(node, Function) and isinstance(node.returns, ast.Name | ast.Attribute):
            yield node.name, _last(node.returns)


@cache
def _makers(file: str = "") -> Mapping[str, str]:
    """Of the file, or public ones of any."""
    if file:
        return dict(_returns(file))
    return {name: made for each in python_files(*FLOORS) for name, made in _returns(each) if name[0] != "_"}


def _caught(attempt: ast.Try) -> Iterator[str]:
    for handler in attempt.handlers:
        match handler.type:
            case None:
                yield "BaseException"
            case ast.Tuple(elts=types):
                yield from map(_last, types)
            case ast.expr() as one:
                yield _last(one)


def _raised(file: str, node: ast.AST, caught: frozenset[str] = frozenset()) -> Iterator[str]:
    """The classes of its errors."""
    match node:
        case ast.Raise(exc=ast.Call(func=function)):
            made_by = _last(function)
            name = _makers(file).get(made_by) or _makers().get(made_by, made_by)
            if caught.isdisjoint(_family(name)):
                yield name
        case ast.Raise(exc=ast.Name(id=name)) if name[0].isupper() and caught.isdisjoint(_family(name)):
            yield name
        case ast.Try():
            within = caught.union(_caught(node))
            for tried in node.body:
                yield from _raised(file, tried, within)
            for other in (*node.handlers, *node.orelse, *node.finalbody):
                yield from _raised(file, other, caught)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Lambda():
            pass
        case _:
            for part in ast.iter_child_nodes(node):
                yield from _raised(file, part, caught)


def _public(body: list[ast.stmt], owner: str = "") -> Iterator[tuple[str, Function]]:
    for node in body:
        if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
            if isinstance(node, ast.ClassDef):
                yield from _public(node.body, f"{node.name}.")
            else:
                yield f"{owner}{node.name}", node


def _registers(call: ast.expr) -> bool:
    """`app.command(...)`, `app.callback(...)`"""
    return isinstance(call, ast.Call) and _last(call.func) in ("command", "callback")


def _commands(file: str) -> frozenset[str]:
    """Functions of the command line: decorated as one, or registered: `cli.command()(up)`."""
    if "/cli" not in file and not file.startswith("chaos/"):
        return frozenset()
    found = set()
    for node in nodes_of(file):
        match node:
            case ast.FunctionDef(name=name, decorator_list=decorators) if any(map(_registers, decorators)):
                found.add(name)
            case ast.Call(func=registered, args=[ast.Name(id=name)]) if _registers(registered):
                found.add(name)
    return frozenset(found)


def _is_said(error: str, docstring: str) -> bool:
    said = " ".join(re.split(r"\braises\b", docstring, flags=re.IGNORECASE)[1:])
    names = {*_family(error)}
    if "BrokerError" in names:
        names.update(ErrorCode.__members__)
    return not names.isdisjoint(re.findall(r"\w+", said))


def _unsaid(file: str) -> Iterator[str]:
    commands = _commands(file)
    for name, function in _public(tree_of(file).body):
        excused = set(BUGS)
        if name in commands:
            excused |= OF_COMMANDS
        if file.startswith("kraft/api/") and function.name.startswith("handle"):
            excused |= OF_HANDLERS
        docstring = ast.get_docstring(function) or ""
        for part in function.body:
            for error in _raised(file, part):
                if excused.isdisjoint(_family(error)) and not _is_said(error, docstring):
                    yield f"{file}:{function.lineno} {name}: {error}"


def test_public_functions_say_what_they_raise() -> None:
    assert sorted({line for file in python_files(*FLOORS) for line in _unsaid(file)}) == []
