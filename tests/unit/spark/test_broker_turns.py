"""Whose turn it is to answer."""

from __future__ import annotations

from kraft.net.client import Address
from spark_connector.broker_turns import SILENT_FOR_S, BrokerTurns

A, B, C = (Address(name, 9092) for name in "abc")


def test_each_is_the_first_in_its_turn():
    turns = BrokerTurns()
    firsts = [turns.among((A, B, C, A), now=0.0)[0] for _ in range(6)]
    assert firsts == [B, C, A, B, C, A]


def test_a_silent_one_comes_last_for_a_while_and_is_never_left_out():
    turns = BrokerTurns()
    turns.waited_in_vain(B, now=100.0)
    assert [turns.among((A, B, C), now=101.0) for _ in range(3)] == [[C, A, B], [C, A, B], [A, C, B]]
    assert turns.among((A, B), now=101.0) == [A, B]
    assert turns.among((B,), now=101.0) == [B]
    later = 100.1 + SILENT_FOR_S
    assert {turns.among((A, B, C), later)[0] for _ in range(3)} == {A, B, C}
