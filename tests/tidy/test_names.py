"""What prose names is there, and nothing has the name of something else."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections import Counter, defaultdict
from functools import cache
from typing import Final

from metadata_quorum.foundation.invariants import Invariant
from tests.support.suite.rows import FEATURES
from tests.tidy.sources import (
    FLOORS,
    FOLDERS,
    ROOT,
    documents,
    nodes_of,
    prose,
    python_files,
    text_of,
    tree_of,
)

SUFFIXES: Final = "py|md|scala|toml|txt|yml|html"
MADE_WHILE_RUNNING: Final = frozenset({"report.html", "schedule.txt"})
OF_USERS: Final = frozenset({"shop.py", "test_shop.py"})
OF_A_NEW_FAMILY: Final = frozenset({"test_raft.py"})
"""tests/golden/scenario_runner.py explains by it how a family of scenarios begins."""

FOREIGN: Final = {
    "the standard library": {"importlib.invalidate_caches", "inet_ntop", "socket.inet_pton"},
    "librdkafka": {"rd_kafka_enq_once_del_source_return"},
    "Kafka": {
        "ApiKeys",
        "canElectLastKnownLeader",
        "connection.failed.authentication.delay.ms",
        "exactly_once_v2",
        "KafkaException",
        "Utils.abs",
    },
    "Spark": {"Trigger.AvailableNow", "setLatestSeenOffset", "spark.jars.packages", "spark.task.maxFailures"},
    "pytest": {"pytest11"},
    "beginnings and ends of names": {"_minutes", "kafka.", "kafka_", "kraft.", "do_NAME"},
    "fields of bytes": {"base_term"},
}


@cache
def files() -> frozenset[str]:
    inside = (
        path
        for folder in (*FOLDERS, "docs", "build_backend", "deploy")
        for path in (ROOT / folder).rglob("*")
    )
    return frozenset(str(path.relative_to(ROOT)) for path in (*inside, *ROOT.iterdir()))


@cache
def ends_of_paths() -> frozenset[str]:
    return frozenset(
        "/".join(parts[i:]) for file in files() if (parts := file.split("/")) for i in range(len(parts))
    )


def exists(name: str) -> bool:
    """A file named in full, or by the end of its path."""
    return name in ends_of_paths()


@cache
def names_in_code() -> frozenset[str]:
    """Every name in the code, and every word of a string without spaces (keys, options)."""
    found = set(dir(builtins)) | set(keyword.kwlist)
    for file in python_files():
        found.update(file.removesuffix(".py").split("/"))
        for node in nodes_of(file):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                    found.add(name)
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    found.add(name)
                case ast.Import(names=names) | ast.ImportFrom(names=names):
                    found.update(word for alias in names for word in alias.name.split("."))
                case ast.Constant(value=str(value)) if " " not in value:
                    found.update(re.findall(r"\w+", value))
                case ast.keyword(arg=str(name)):
                    found.add(name)
    return frozenset(found)


def test_files_and_folders_that_prose_names_are_there():
    named_file = re.compile(rf"(?<![\w/.*<>-])((?:[\w.-]+/)*\w[\w-]*\.(?:{SUFFIXES}))\b")
    named_place = re.compile(rf"(?<![\w/.-])((?:{'|'.join(FOLDERS)})/[\w/-]*\w)")
    excused = MADE_WHILE_RUNNING | OF_USERS | OF_A_NEW_FAMILY
    gone = [
        (text.place, name)
        for text in prose()
        if not text.place.startswith("README.md")  # the page of an application of its own
        for name in {*named_file.findall(text.text), *named_place.findall(text.text)}
        if not (name in excused or exists(name) or exists(f"{name}.py") or "bench-results" in name)
    ]
    assert gone == []


def test_names_between_backticks_are_in_the_code():
    foreign = set().union(*FOREIGN.values())
    named = re.compile(r"`([A-Za-z_][\w.]*)`")
    gone = [
        (text.place, name)
        for text in prose()
        if not text.place.startswith("docs/")  # which name configurations and other people's things
        for name in named.findall(text.text)
        if name not in foreign and not set(name.split(".")) <= names_in_code()
    ]
    assert gone == []


def test_classes_that_prose_names_are_in_the_code():
    """In "Raises X" and in "X.method"."""
    foreign = set().union(*FOREIGN.values())
    nodes = (node for file in python_files() for node in nodes_of(file))
    classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)} | set(dir(builtins))
    named = re.compile(r"\b[Rr]aises `?([A-Z]\w*[a-z]\w*)|(?<![\w./`-])([A-Z][a-z]\w*\.[a-z_][a-z0-9_]+)\b")
    gone = [
        (text.place, name)
        for text in prose()
        if not text.place.startswith(("docs/", "README.md"))
        for name in map("".join, named.findall(text.text))
        if name not in foreign
        and not (name.partition(".")[0] in classes and set(name.split(".")) <= names_in_code())
    ]
    assert gone == []


def test_prose_cites_no_document_that_is_gone():
    assert [text.place for text in prose() if re.search(r"\b(RELIABILITY|INVARIANTS)\b", text.text)] == []


def test_tests_that_documents_name_are_there():
    tests = {
        node.name
        for file in python_files("tests")
        for node in nodes_of(file)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    } | {file.rpartition("/")[2].removesuffix(".py") for file in python_files("tests")}
    for page in documents():
        for named in re.findall(r"`(?:\w+/)*(test_\w+)(\*?)`", text_of(page)):
            name, star = named
            assert name in tests or (star and any(test.startswith(name) for test in tests)), (page, name)


def test_make_targets_that_prose_names_are_there():
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    named = {name for text in prose() for name in re.findall(r"`make ([a-z-]+)", text.text)}
    assert named <= targets


def test_feature_rows_have_names_of_their_own():
    rows = re.findall(r"^\| ([A-Z]\d+) \|", FEATURES.read_text(), re.MULTILINE)
    assert [row for row, count in Counter(rows).items() if count > 1] == []


def test_the_documented_invariants_are_those_of_the_code():
    table = re.findall(r"^\| ([A-Z_]{4,}) \| (.*) \|$", text_of("docs/ARCHITECTURE.md"), re.MULTILINE)
    assert table == [(each.name, each.value) for each in Invariant]


def test_the_documented_ways_count_the_modules_that_they_pass():
    ways = re.findall(r"\((\d+) modules\)[^→]*\n\n((?:   .*\n)+)", text_of("docs/ARCHITECTURE.md"))
    assert len(ways) == 10
    for count, listed in ways:
        modules = re.findall(r"`([\w/]+)`", listed)
        assert len(set(modules)) == len(modules) == int(count), listed
        assert [module for module in modules if not exists(f"{module}.py")] == []


def test_no_class_has_the_name_of_another_on_its_floor():
    for floor in FLOORS:
        places: dict[str, list[str]] = defaultdict(list)
        for file in python_files(floor):
            for node in tree_of(file).body:
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(file)
        assert {name: found for name, found in places.items() if len(found) > 1} == {}, floor
