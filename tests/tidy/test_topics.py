"""No two test files make a topic of the same name: files that run in one worker share its cluster, and which
do depends on the day."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from tests.tidy.sources import python_files, tree_of

NAME_AT: Final[Mapping[str, int]] = {"create_topic": 1, "NewTopic": 0}
"""Which argument of a call is the new topic's name."""
COMMAND: Final = ("topic", "create")


def new_topics(tree: ast.Module) -> Iterator[str]:
    """Names that stand in calls which create topics, by function or by command."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            words = [each.value if isinstance(each, ast.Constant) else None for each in node.args]
            is_command = tuple(words[: len(COMMAND)]) == COMMAND
            place = len(COMMAND) if is_command else NAME_AT.get(ast.unparse(node.func).rpartition(".")[2])
            if place is not None and place < len(words) and isinstance(name := words[place], str):
                yield name


def test_a_topic_is_made_by_one_file_of_tests() -> None:
    files = defaultdict(set)
    for file in python_files("tests"):
        for name in new_topics(tree_of(file)):
            files[name].add(file)
    assert {name: sorted(users) for name, users in files.items() if len(users) > 1} == {}


def test_topics_are_found_however_they_are_made() -> None:
    source = """
create_topic(bootstrap, "a", partitions=2)
admin.create_topics([NewTopic("b", 1)])
shell("topic", "create", "c")
kraft("topic", "describe", "d")
"""
    assert sorted(new_topics(ast.parse(source))) == ["a", "b", "c"]
