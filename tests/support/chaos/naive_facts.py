"""What an operation of a history sent and polled."""

from __future__ import annotations

from chaos.history import Operation, Poll, Send


def sends(op: Operation) -> list[Send]:
    return [micro for micro in op.ops if isinstance(micro, Send)]


def polled(op: Operation) -> list[tuple[str, int, int]]:
    return [
        (key, pair[0], pair[1])
        for micro in op.ops
        if isinstance(micro, Poll)
        for key, pairs in micro.messages.items()
        for pair in pairs
    ]
