"""Patterns of topics: the same answers as Python's `re` where both know the syntax, and in linear time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.coordinator.groups.consumer.topic_patterns import compiled
from metadata_quorum.errors import BrokerError, ErrorCode

pytestmark = pytest.mark.row("G6")

pieces = st.sampled_from(
    [
        "a",
        "b",
        "-",
        r"\.",
        ".",
        "[ab]",
        "[^a]",
        "[a-c_]",
        r"[\d.]",
        "[]a]",
        "[a-]",
        r"\d",
        r"\W",
        "^",
        "$",
        r"\b",
        "(?i:A)",
    ]
)
repeats = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "{", "{a}"])


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.builds("({}){}".format, inner, repeats)
    return st.lists(st.one_of(inner, groups), min_size=1, max_size=3).map("".join) | st.builds(
        "{}|{}".format, inner, inner
    )


regexes = st.recursive(st.builds("{}{}".format, pieces, repeats), grown, max_leaves=8)
names = st.text("abcA1._-", max_size=8)


@settings(max_examples=400, deadline=None)
@given(regexes, st.lists(names, min_size=1, max_size=4))
def test_the_answers_are_those_of_re(regex: str, candidates: list[str]) -> None:
    try:
        reference = re.compile(regex)
    except re.error:  # a repeated edge, which RE2 allows
        return
    pattern = compiled(regex)
    for name in candidates:
        assert pattern.matches(name) == (reference.fullmatch(name) is not None), name


@pytest.mark.parametrize(
    ("regex", "name", "matches"),
    [
        (r"\Qa.b\E+", "a.bbb", True),
        (r"\Qa.b\E", "a-b", False),
        (r"(?P<x>a)(?<y>b)", "ab", True),
        (r"(?i)tOPIC-\p{Lu}", "topic-X", True),
        (r"\pL+\p{Nd}\PL", "ab1.", True),
        (r"[[:alpha:]][[:^digit:]]", "a1", False),
        (r"\x61\x{62}[\x61-c]", "abc", True),
        ("(?:a|)", "", True),
        ("(?i)a(?-i)b", "Ab", True),
        ("(?i)a(?-i)b", "AB", False),
        ("x{,3}", "x{,3}", False),
    ],
)
def test_syntax_of_re2(regex: str, name: str, matches: bool) -> None:
    assert compiled(regex).matches(name) is matches


@pytest.mark.parametrize(
    "regex",
    ["a(", "a)", "[a", "*a", "a**", "a*+", "a{2}{3}", "a{3,2}", "a{1001}", "(?=a)", "(?<!b)a", r"(a)\1",
     "(?>a)", "(?P=x)", "[c-a]", "[[:what:]]", r"\q", "\\", "(?i", "(?#a)", "((a{1000}){9}){9}",
     "(" * 200 + ")" * 200],
)  # fmt: skip
def test_what_is_no_expression_of_re2_is_refused(regex: str) -> None:
    with pytest.raises(BrokerError) as refusal:
        compiled(regex)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("regex", ["(a*)*b", "(a|a)*b", "(a|aa)+b", "(.*.*.*.*)*b"])
def test_no_expression_takes_long(regex: str) -> None:
    """Python's `re` would not come back from any of these."""
    assert not compiled(regex).matches("a" * 249)
