"""One table for what an API is: APIs have names, not numbers, and a decoded request is never edited."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from kraft.api.docs import lines
from kraft.wire.api_keys import ApiKey
from tests.tidy.sources import FLOORS, nodes_of, python_files, text_of, tree_of

NUMBERED: Final = "kraft/wire/api_keys.py"
HOT: Final = {"kraft/api/dispatch.py": "every request is compared with it"}
"""Where an alias of a member of ApiKey saves its look-up."""

NUMBERS: Final = frozenset(map(int, ApiKey))

RECORDS_ARE_SENT_TOO: Final = "send"
"""A function of clients with an API key, and one of tests with record values."""


# ---- no number of an API but in ApiKey -----------------------------------------------------------------


def _is_int(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _api_named(node: ast.expr) -> ApiKey | None:
    """The API whose number it is."""
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value in NUMBERS:
        return ApiKey(node.value)
    return None


def _bound(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """The names that a statement binds, and their values."""
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                match target, value:
                    case ast.Name(id=name), _:
                        yield name, value
                    case ast.Tuple(elts=names), ast.Tuple(elts=values):
                        pairs = zip(names, values, strict=False)
                        yield from ((each.id, one) for each, one in pairs if isinstance(each, ast.Name))


def _words(name: str) -> set[str]:
    return {word.rstrip("S") for word in name.strip("_").upper().split("_")}


def test_no_constant_is_the_number_of_an_api() -> None:
    found = [
        f"{file}: {name} = {ast.unparse(value)}"
        for file in python_files()
        if file != NUMBERED
        for statement in tree_of(file).body
        for name, value in _bound(statement)
        if (_is_int(value) and name.strip("_") in ApiKey.__members__)
        or ((key := _api_named(value)) is not None and _words(name) <= _words(key.name))
    ]
    assert found == []


def test_an_api_has_another_name_only_where_its_look_up_would_be_felt() -> None:
    found = {
        file
        for file in python_files()
        for statement in tree_of(file).body
        for _, value in _bound(statement)
        if isinstance(value, ast.Attribute) and ast.unparse(value.value) == "ApiKey"
    }
    assert found == HOT.keys()


@cache
def _positions() -> Mapping[str, set[int]]:
    """By function: where its API key stands among the arguments, if a version follows it."""
    found: dict[str, set[int]] = defaultdict(set)
    for file in python_files():
        for node in nodes_of(file):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names = [each.arg for each in node.args.args if each.arg not in ("self", "cls")]
                for place, name in enumerate(names[:-1]):
                    if name == "api_key" and names[place + 1].startswith("version"):
                        found[node.name].add(place)
    del found[RECORDS_ARE_SENT_TOO]
    return found


def _calls(file: str) -> Iterator[tuple[ast.Call, str]]:
    for node in nodes_of(file):
        match node:
            case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
                yield node, name


def test_no_api_is_asked_by_its_number() -> None:
    """What mypy does not check: in tests, keys may be any int."""
    assert {"request", "ask", "encode_request", "decode_response"} <= _positions().keys()
    found = [
        f"{file}:{call.lineno} {ast.unparse(call)[:60]}"
        for file in python_files()
        for call, name in _calls(file)
        for place in _positions().get(name, ())
        if len(call.args) > place + 1
        and _api_named(call.args[place]) is not None
        and (_is_int(call.args[place + 1]) or "VERSION" in ast.unparse(call.args[place + 1]).upper())
    ]
    assert found == []


def test_no_api_is_compared_by_its_number() -> None:
    found = [
        f"{file}:{node.lineno} {ast.unparse(node)}"
        for file in python_files()
        if "api_key" in text_of(file) or "row.key" in text_of(file)
        for node in nodes_of(file)
        if isinstance(node, ast.Compare)
        and ast.unparse(node.left).endswith(("api_key", "row.key"))
        and any(_is_int(each) for other in node.comparators for each in getattr(other, "elts", [other]))
    ]
    assert found == []


def test_the_types_of_keys_say_so() -> None:
    """But where strangers' numbers are read: headers, the look-up of schemas, and who looks at a frame before
    its header is read."""
    readers = {
        "kraft/api/dispatch.py",
        "kraft/monitoring/request_metrics.py",
        "kraft/net/connection.py",
        "kraft/wire/header.py",
        "kraft/wire/schemas.py",
    }
    found = {
        file
        for file in python_files(*FLOORS)
        for node in nodes_of(file)
        if isinstance(node, ast.arg) and node.arg == "api_key"
        if node.annotation is not None and ast.unparse(node.annotation) == "int"
    }
    assert found == readers


# ---- a decoded request is never edited -----------------------------------------------------------------


def _edits(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="vars")) | ast.Attribute(attr="__dict__"):
            return True
        case ast.Attribute(value=ast.Name(id="request" | "envelope"), ctx=ast.Store()):
            return True
        case _:
            return False


def test_no_handler_and_no_authorization_edits_a_request() -> None:
    found = [
        f"{file}:{getattr(node, 'lineno', 0)}"
        for file in python_files("kraft/api", "fetch")
        for node in nodes_of(file)
        if _edits(node)
    ]
    assert found == []


# ---- what derives from the table -----------------------------------------------------------------------


def test_the_page_of_apis_is_the_table() -> None:
    assert text_of("docs/APIS.md") == "\n".join([*lines(), ""])
