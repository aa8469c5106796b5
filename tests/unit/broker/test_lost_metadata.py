"""A broker whose controllers have lost what they had committed ends; one whose controller has yet to hear of
the next leader does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraft.broker.metadata_follower import RETRY_S, STALE_ANSWERS, MetadataFollower
from metadata_quorum.foundation.errors import ErrorCode, ExitCode, FatalError
from tests.support.kraft_quorum import KraftQuorum, batch, diverging, feature, following, level


def redirecting(epoch: int) -> dict[str, Any]:
    """By who knows of no leader in its term."""
    answer = diverging(epoch=epoch)
    partition = answer["responses"][0]["partitions"][0]
    del partition["diverging_epoch"]
    partition["current_leader"]["leader_id"] = -1
    partition["error_code"] = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return answer


def ending_before_us(epoch: int = 7) -> dict[str, Any]:
    answer = diverging(epoch=epoch)
    partition = answer["responses"][0]["partitions"][0]
    del partition["diverging_epoch"]
    partition |= {"error_code": int(ErrorCode.OFFSET_OUT_OF_RANGE), "high_watermark": 1}
    return answer


@pytest.mark.parametrize("answer", [diverging(end_offset=1), ending_before_us()])
def test_it_ends_with_its_node_where_a_controller_has_lost_what_was_committed(answer: dict[str, Any]) -> None:
    """The controllers were restored from a backup, while the broker ran on. Once they had decided as much
    anew as they had lost, it took their history in behind the other one."""
    quorum = KraftQuorum([batch(0, feature(20)), batch(1, feature(21))])
    ended: list[BaseException] = []

    async def test(follower: MetadataFollower) -> None:
        await level(follower, 21)
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: ended.append(context["exception"])
        )
        quorum.batches = [batch(0, feature(20))]
        quorum.broken = lambda: answer
        while not ended:  # noqa: ASYNC110 - of the follower's own
            await asyncio.sleep(0.001)
        quorum.batches += [batch(1, feature(25)), batch(2, feature(22))]
        await asyncio.sleep(10)
        assert follower.image.features["metadata.version"] == 21

    following(quorum, test)
    (error,) = ended
    assert isinstance(error, FatalError)
    assert error.exit_code is ExitCode.WRONG_CLUSTER
    assert "controller 2 has lost metadata from offset 1 on" in error.reason


@pytest.mark.parametrize("answer", [diverging(end_offset=1, epoch=6), ending_before_us(epoch=6)])
def test_a_leader_that_does_not_know_yet_that_it_was_replaced_has_lost_nothing(
    answer: dict[str, Any],
) -> None:
    """Without its voters it stays active for two seconds. It ended the node of whoever had followed the next
    one, and came back to it."""
    quorum = KraftQuorum([batch(0, feature(20)), batch(1, feature(21))], voters=(1, 2, 3))

    async def test(follower: MetadataFollower) -> None:
        await level(follower, 21)
        quorum.reached, quorum.stand_by[2] = {2}, answer
        asked = len(quorum.asked)
        await asyncio.sleep(STALE_ANSWERS // 2 * RETRY_S)
        assert len(quorum.asked) > asked + STALE_ANSWERS // 3
        quorum.stand_by.clear()
        quorum.batches += [batch(2, feature(22))]
        await level(follower, 22)

    following(quorum, test)


def test_a_term_that_nobody_was_elected_in_proves_nothing() -> None:
    """A candidate alone knows of it; the others are behind it, and right."""
    quorum = KraftQuorum([batch(0, feature(20)), batch(1, feature(21))], voters=(1, 2, 3))

    async def test(follower: MetadataFollower) -> None:
        await level(follower, 21)
        quorum.reached, quorum.stand_by[1] = {1}, redirecting(9)
        await asyncio.sleep(1)
        quorum.reached, quorum.stand_by = {2, 3}, {2: ending_before_us(epoch=7), 3: redirecting(7)}
        await asyncio.sleep(1)
        quorum.stand_by.clear()
        quorum.leader, quorum.epoch = 3, 10
        quorum.batches += [batch(2, feature(22))]
        await level(follower, 22)

    following(quorum, test)


def refusing() -> dict[str, Any]:
    """An ACL is missing, or not loaded yet: of the leader it says nothing."""
    answer = ending_before_us()
    partition = answer["responses"][0]["partitions"][0]
    del partition["current_leader"]
    partition |= {"error_code": int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), "high_watermark": -1}
    return answer


@pytest.mark.parametrize(
    "answer", [refusing(), redirecting(-1), redirecting(0)], ids=["refuses", "has no vote", "has a new disk"]
)
def test_who_tells_no_epoch_is_not_behind(answer: dict[str, Any]) -> None:
    """With one leader that did not know yet that it was replaced it was a majority, and ended the node."""
    quorum = KraftQuorum([batch(0, feature(20)), batch(1, feature(21))], voters=(1, 2, 3))

    async def test(follower: MetadataFollower) -> None:
        await level(follower, 21)
        quorum.reached, quorum.stand_by = {1, 3}, {1: answer, 3: ending_before_us(epoch=6)}
        await asyncio.sleep(1)
        assert {voter for voter, *_ in quorum.asked[-4:]} == {1, 3}
        quorum.reached = None
        quorum.batches += [batch(2, feature(22))]
        await level(follower, 22)

    following(quorum, test)


def test_who_was_behind_is_asked_again_where_the_others_are_silent() -> None:
    quorum = KraftQuorum([batch(0, feature(20)), batch(1, feature(21))], voters=(1, 2, 3))

    async def test(follower: MetadataFollower) -> None:
        await level(follower, 21)
        quorum.reached, quorum.stand_by[3] = {3}, redirecting(6)
        await asyncio.sleep(1)
        quorum.stand_by.clear()
        quorum.reached, quorum.silent = {2, 3}, {2}
        quorum.leader, quorum.epoch, quorum.active = 3, 8, 3
        quorum.batches += [batch(2, feature(22))]
        await level(follower, 22)

    following(quorum, test)


@pytest.mark.parametrize("answer", [diverging(1, epoch=6), diverging(5, epoch=6), ending_before_us(epoch=6)])
@pytest.mark.parametrize(
    ("discovers", "at_most"), [(False, 4), pytest.param(True, STALE_ANSWERS + 3, id="discovers")]
)
def test_controllers_restored_from_before_an_election_are_of_an_older_epoch(
    answer: dict[str, Any], discovers: bool, at_most: int
) -> None:
    """All of them: once a majority has said so it is certain, and before they decide much. Where they are
    learned of one by one nobody knows how many that is."""
    quorum = KraftQuorum(
        [batch(0, feature(20)), batch(1, feature(21))], voters=(1, 2, 3), discovers=discovers
    )
    ended: list[BaseException] = []

    async def test(follower: MetadataFollower) -> None:
        await level(follower, 21)
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: ended.append(context["exception"])
        )
        quorum.asked.clear()
        quorum.stand_by = {1: redirecting(6), 2: answer, 3: redirecting(6)}
        await asyncio.sleep(30)

    following(quorum, test)
    (error,) = ended
    assert isinstance(error, FatalError)
    assert error.exit_code is ExitCode.WRONG_CLUSTER
    assert "lost metadata from offset 1 on" in error.reason
    assert sum(voter == 2 for voter, *_ in quorum.asked) <= at_most
