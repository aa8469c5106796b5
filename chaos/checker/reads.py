"""Forbidden reads: of values that failed, that are not committed yet, or that were never sent.

A reader of uncommitted records (isolation.level=read_uncommitted) may see open and aborted ones, but none
that were never sent."""

from __future__ import annotations

from chaos.checker.anomalies import ALTERED_RECORD, G1A, PHANTOM, PRECOMMITTED_READ
from chaos.checker.observations import Observations, polls_of, sends_of
from chaos.checker.verdict import Findings


def check_reads(seen: Observations, findings: Findings) -> None:
    _aborted_reads(seen, findings)
    _precommitted_reads(seen, findings)
    _phantoms(seen, findings)
    _altered_records(seen, findings)


def _aborted_reads(seen: Observations, findings: Findings) -> None:
    failed = {value for value, sent in seen.senders.items() if seen.failed(sent)}
    for key, partition in seen.partitions.items():
        shown = sorted(partition.shown_of(failed))
        sightings = partition.first_sightings() if shown else {}
        for value in shown:
            sent = seen.sender(key, value)
            if sent is None:
                continue
            reader = sightings[value]
            what = "of an aborted transaction" if seen.operations[sent.op].f == "txn" else "whose send failed"
            findings.add(
                G1A,
                key,
                f"value {value} {what} (op {sent.op}) was polled from {key} (op {reader})",
                [sent.op, reader],
                value=value,
            )


def _precommitted_reads(seen: Observations, findings: Findings) -> None:
    for index, operation in enumerate(seen.operations):
        sent = {(send.key, send.value) for send in sends_of(operation)}
        if not sent:
            continue
        polled = {
            (key, pair[1])
            for poll in polls_of(operation)
            for key, pairs in poll.messages.items()
            for pair in pairs
        }
        for key, value in sorted(sent & polled):
            findings.add(
                PRECOMMITTED_READ,
                key,
                f"op {index} of process {operation.process} sent value {value} to {key} and polled it itself",
                [index],
                value=value,
            )


def _phantoms(seen: Observations, findings: Findings) -> None:
    """A run that was cut short has not recorded the sends that were open then: without the final phase that
    ends a whole run, a value of unknown origin may be one of those."""
    if PHANTOM.name in findings.not_judged:
        return
    for key, partition in seen.partitions.items():
        uncommitted = seen.uncommitted.get(key)
        for offset in partition.polled if uncommitted is None else {**partition.polled, **uncommitted.polled}:
            for value, sighting in seen.sightings(key, offset).items():
                if seen.sender(key, value) is not None:
                    continue
                elsewhere = seen.senders.get(value)
                origin = "nobody sent" if elsewhere is None else f"op {elsewhere.op} sent to {elsewhere.key}"
                findings.add(
                    PHANTOM,
                    key,
                    f"value {value}, which {origin}, was polled at offset {offset} of {key} "
                    f"(op {sighting.op})",
                    [sighting.op] if elsewhere is None else [elsewhere.op, sighting.op],
                    value=value,
                    offset=offset,
                )


def _altered_records(seen: Observations, findings: Findings) -> None:
    for index, operation in enumerate(seen.operations):
        for poll in polls_of(operation) if operation.ops else ():
            for key, offset, what in poll.altered:
                findings.add(
                    ALTERED_RECORD,
                    key,
                    f"op {index} was given the record at offset {offset} of {key}, but not the {what} that "
                    "it was sent with",
                    [index],
                    op=index,
                    offset=offset,
                    what=what,
                )
