"""Patterns that clients send: RE2's syntax, in bounded time; and the topics that they stand for."""

from __future__ import annotations

import re
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.coordinator.groups.consumer import topic_patterns
from data_plane.coordinator.groups.consumer.topic_patterns import NAMES_PER_STEP, TopicMatches, compiled
from metadata_quorum.foundation.client_pattern import LONGEST_TEXT, ClientPattern
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.support.cpu_time import cpu_s
from tests.support.suite.examples import examples

pytestmark = pytest.mark.row("G6")

names = st.text("abcA1._-", min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("regex", "name", "matches"),
    [
        ("a.*", "abc", True),
        ("b", "abc", False),  # the whole of it
        (r"(?P<x>a)(?<y>b)", "ab", True),
        (r"(?i)tOPIC-\p{Lu}", "topic-X", True),
        (r"\pL+\p{Nd}\PL", "ab1.", True),
        (r"[[:alpha:]][[:^digit:]]", "a1", False),
        (r"\Qa.b\E", "a-b", False),
        ("tö.*", "töpfe", True),  # a transactional id may be called anything
    ],
)
def test_syntax_of_re2(regex: str, name: str, matches: bool) -> None:
    assert compiled(regex).matches(name) is matches


@pytest.mark.parametrize(
    "regex",
    ["a(", "a)", "[a", "*a", "a**", "a{3,2}", "a{1001}", "(?=a)", "(?<!b)a", r"(a)\1", r"\q", "\\",
     "((a{1000}){9}){9}"],
)  # fmt: skip
def test_what_is_no_expression_of_re2_is_refused(regex: str) -> None:
    with pytest.raises(BrokerError) as refusal:
        compiled(regex)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("regex", ["[a-z]{0,1000}" * 2_500, r"\pL" * 10_900, "a{1000}" * 4_000, "x" * 32_767])
def test_what_takes_long_to_compile_is_refused(regex: str) -> None:
    def refused() -> None:
        with pytest.raises(ValueError, match="too large"):
            ClientPattern(regex)

    assert cpu_s(refused) < 0.05


@pytest.mark.parametrize(
    "regex",
    ["(a*)*b", "(a|a)*b", "(.*.*.*.*)*b", "(.?){249}x", "(a?b?){200}x", ".*a.{240}b", "(.*a)" * 100 + "x"],
)
def test_no_expression_takes_long(regex: str) -> None:
    """Python's `re` would not come back from some of these; a step's worth of the longest names."""
    pattern = compiled(regex)

    def step() -> None:
        assert not any(pattern.matches("ab" * 120 + str(number)) for number in range(NAMES_PER_STEP))

    assert cpu_s(step) < 0.05


def test_a_text_without_end_matches_nothing() -> None:
    assert compiled("a*").matches("a" * LONGEST_TEXT)
    assert not compiled("a*").matches("a" * (LONGEST_TEXT + 1))


def test_escapes_mean_what_they_mean_in_java() -> None:
    for refused in (r"\C", r"a\\\C", r"[\C]"):
        with pytest.raises(ValueError, match="invalid escape"):
            ClientPattern(refused)
    assert ClientPattern(r"caf\é[\é]").matches("caféé")
    assert ClientPattern(r"\Q\C\E").matches(r"\C")
    assert ClientPattern(r"\\C").matches(r"\C")


@settings(max_examples=examples(100), deadline=None)
@given(st.sets(names, max_size=40), st.sampled_from(["a.*", "[ab]+", ".*1", "(?i)a+.*", "nothing"]))
def test_topics_are_looked_up_in_steps(topics: set[str], regex: str) -> None:
    matches = TopicMatches(lambda: topics)
    steps = sum(1 for _ in matches.steps(regex))
    assert steps == -(-len(topics) // NAMES_PER_STEP)
    assert list(matches.matching(regex)) == sorted(name for name in topics if re.fullmatch(regex, name))
    assert not any(True for _ in matches.steps(regex))  # known


def test_topics_that_come_in_the_middle_are_found_and_no_other_is_looked_at_again() -> None:
    topics = [f"t{number}" for number in range(NAMES_PER_STEP * 3)]
    matches = TopicMatches(lambda: topics)
    steps = matches.steps("t.*")
    next(steps)
    topics.append("t-new")
    matches.changed(created=["t-new"], deleted=[])
    assert sum(1 for _ in steps) == 3
    assert "t-new" in matches.matching("t.*")
    topics.remove("t-new")
    matches.changed(created=[], deleted=["t-new"])
    assert not matches.is_known("t.*")
    assert sum(1 for _ in matches.steps("t.*")) == 1
    assert "t-new" not in matches.matching("t.*")


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.sets(names, max_size=20), st.integers(0, 3)), max_size=12), st.booleans())
def test_topics_come_and_go(moments: list[tuple[set[str], int]], few_are_kept: bool) -> None:
    """`int`: so many steps are taken before the next change."""
    topics: set[str] = set()
    matches = TopicMatches(lambda: topics)
    with pytest.MonkeyPatch.context() as patch:
        if few_are_kept:
            patch.setattr(topic_patterns, "CHANGES_KEPT", 10)
            patch.setattr(topic_patterns, "FOUND_KEPT", 60)
        for now, taken in moments:
            topics, before = now, topics
            matches.changed(created=now - before, deleted=before - now)
            for regex in ("a.*", "[ab]+", ".*1"):
                for _ in islice(matches.steps(regex), taken):
                    pass
        for regex in ("a.*", "[ab]+", ".*1", "a.*"):
            expected = sorted(name for name in topics if re.fullmatch(regex, name))
            assert list(matches.matching(regex)) == expected


def test_patterns_that_match_nothing_are_not_kept_for_ever() -> None:
    """A member may have another one with every heartbeat."""
    matches = TopicMatches(lambda: ["t"])
    looked = [f"{'x' * 10_000}{number}" for number in range(200)]
    for regex in looked:
        assert matches.matching(regex) == ()
    assert sum(map(matches.is_known, looked)) <= topic_patterns.FOUND_KEPT // 10_000
    assert matches.is_known(looked[-1])
