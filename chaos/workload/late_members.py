"""Two members of a group of their own, in turns: one takes the other's place, and the other commits then.

    join, sync -> owned, in a generation … the next one joins; the last says nothing, and is left out
    the last commits, as the member that it was -> refused, or the checker's stale-commit

They speak by our own client: librdkafka does not tell in which generation it commits, nor when it asked.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from chaos.history import Outcome, partition_of
from chaos.workload.journal import Journal
from kraft.net.client import Address, UnsupportedVersion
from kraft.peers.blocking_client import ask
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import MalformedMessage, Message
from kraft.wire.coordinator_type import CoordinatorType
from metadata_quorum.foundation.errors import ErrorCode

VERSIONS: Final = {
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.OFFSET_COMMIT: 8,
}
SESSION_MS: Final = 6_000
"""The shortest that brokers allow by default. Nobody waits for its end."""
REBALANCE_MS: Final = 500
"""So long the last member is waited for, when the next one joins."""
TIMEOUT_S: Final = 5.0
"""For an answer; a new group's first rebalance takes 3 s by default."""
AGAIN_S: Final = 0.5
LATE: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""What a coordinator says to the commit of one that has been replaced."""
NAME: Final = "late"
"""Of the protocol by which they are assigned."""


class RefusedMember(OSError):
    """The coordinator has refused, or is another one now."""


@dataclass(frozen=True, slots=True)
class TakenPlace:
    """What a member was given."""

    member_id: str
    generation: int
    journal: Journal


class LateMembers:
    """See the module."""

    def __init__(self, bootstrap: str, group: str, key: str, journals: Sequence[Journal]) -> None:
        """`bootstrap`: HOST:PORT,…; `key`: the partition that they are given; a journal for each."""
        self._bootstrap = [_address(each) for each in bootstrap.split(",")]
        self.group = group
        self._key = key
        self._journals = list(journals)
        self._last: TakenPlace | None = None

    def run(self, stopping: threading.Event) -> None:
        """Turn after turn; what fails is tried again by the next."""
        while not stopping.is_set():
            try:
                self.take_turn()
            except (OSError, UnsupportedVersion, MalformedMessage):
                self._last = None
            stopping.wait(AGAIN_S)

    def take_turn(self) -> None:
        """The next member takes its place; then the last one commits. Raises OSError."""
        last, self._last = self._last, None
        self._journals.append(self._journals.pop(0))
        coordinator = self._coordinator()
        joined = self._join(coordinator, self._journals[0])
        if last is not None:
            self._commit(coordinator, last)
        self._commit(coordinator, joined)
        self._last = joined

    def _coordinator(self) -> Address:
        fields = {"key_type": CoordinatorType.GROUP, "coordinator_keys": [self.group]}
        silent: OSError = RefusedMember("nobody is there")
        for address in self._bootstrap:
            try:
                (row,) = _ask(address, ApiKey.FIND_COORDINATOR, fields).coordinators
            except OSError as error:
                silent = error
                continue
            if row.error_code:
                _refuse(row.error_code)
            return Address(row.host, row.port)
        raise silent

    def _join(self, coordinator: Address, journal: Journal) -> TakenPlace:
        member_id = ""
        while True:
            fields: dict[str, Any] = {
                "group_id": self.group, "session_timeout_ms": SESSION_MS,
                "rebalance_timeout_ms": REBALANCE_MS, "member_id": member_id, "group_instance_id": None,
                "protocol_type": NAME, "protocols": [{"name": NAME, "metadata": b""}], "reason": None,
            }  # fmt: skip
            joined = _ask(coordinator, ApiKey.JOIN_GROUP, fields)
            if ErrorCode(joined.error_code) is not ErrorCode.MEMBER_ID_REQUIRED:
                break
            member_id = joined.member_id
        if joined.error_code or joined.leader != joined.member_id:
            _refuse(joined.error_code)
        fields = {
            "group_id": self.group, "generation_id": joined.generation_id, "member_id": joined.member_id,
            "group_instance_id": None, "protocol_type": NAME, "protocol_name": NAME,
            "assignments": [{"member_id": joined.member_id, "assignment": self._key.encode()}],
        }  # fmt: skip
        answer = _ask(coordinator, ApiKey.SYNC_GROUP, fields)
        if answer.error_code or bytes(answer.assignment) != self._key.encode():
            _refuse(answer.error_code)
        generation = joined.generation_id
        now = journal.now_ns()
        journal.note("owned", now, "ok", keys=[self._key], group=self.group, generation=generation)
        return TakenPlace(joined.member_id, generation, journal)

    def _commit(self, coordinator: Address, member: TakenPlace) -> None:
        """The beginning of the partition, which nobody has to have read."""
        topic, number = partition_of(self._key)
        row = {
            "partition_index": number, "committed_offset": 0,
            "committed_leader_epoch": -1, "committed_metadata": "",
        }  # fmt: skip
        fields = {
            "group_id": self.group, "generation_id_or_member_epoch": member.generation,
            "member_id": member.member_id, "group_instance_id": None,
            "topics": [{"name": topic, "partitions": [row]}],
        }  # fmt: skip
        start = member.journal.now_ns()
        (found,) = _ask(coordinator, ApiKey.OFFSET_COMMIT, fields).topics
        code = ErrorCode(found.partitions[0].error_code)
        if code not in LATE | {ErrorCode.NONE}:
            _refuse(code)
        outcome: Outcome
        outcome, error = ("fail", code.name) if code in LATE else ("ok", None)
        member.journal.note(
            "commit", start, outcome, error=error,
            group=self.group, generation=member.generation, committed={self._key: 0},
        )  # fmt: skip


def _ask(address: Address, api_key: ApiKey, fields: Mapping[str, Any]) -> Message:
    version = VERSIONS[api_key]
    return ask(address.host, address.port, api_key, (version, version), fields, timeout_s=TIMEOUT_S)


def _refuse(code: int) -> NoReturn:
    raise RefusedMember(ErrorCode(code).name)


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host, int(port))
