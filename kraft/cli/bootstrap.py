"""`--bootstrap-server`: the addresses in it, and whichever of them answers."""

from __future__ import annotations

import re
from collections.abc import Sequence

import typer

from kraft.cli.errors import CliError, UsageError

Address = tuple[str, int]

TIMEOUT_S = 1.5
MAX_PORT = 65535


def addresses(bootstrap: str) -> list[Address]:
    """Raises CliError where one is none."""
    return [_address(each.strip(), bootstrap) for each in bootstrap.split(",")]


def _address(text: str, bootstrap: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not (host and colon and re.fullmatch("[0-9]{1,5}", port) and 0 < int(port) <= MAX_PORT):
        raise UsageError(f"{bootstrap}: a bootstrap server is HOST:PORT")
    return host.strip("[]"), int(port)


def checked(ctx: typer.Context, bootstrap: str) -> str:
    """An option's callback. Raises UsageError where an address is none, before anything else is done."""
    if not ctx.resilient_parsing:
        addresses(bootstrap)
    return bootstrap


def any_broker(bootstrap: str) -> Address:
    """The broker that answers first. Where only one is named there is nothing to choose, and nothing is
    asked. Raises CliError where none of several answers."""
    known = addresses(bootstrap)
    return known[0] if len(known) == 1 else first_broker(bootstrap)


def first_broker(bootstrap: str) -> Address:
    """The broker that answers first. Raises CliError with why where none does."""
    known = addresses(bootstrap)
    # The codec takes a while to import, and `kraft --help` must not wait for it.
    from kraft.cli.silence import silence_of
    from kraft.net.client import Address as NodeAddress
    from kraft.peers.blocking_client import first_to_answer

    found = first_to_answer([NodeAddress(*each) for each in known], TIMEOUT_S)
    if isinstance(found, list):
        raise no_broker(bootstrap, [silence_of(error) for error in found])
    return found.host, found.port


def no_broker(bootstrap: str, silences: Sequence[str]) -> CliError:
    """`silences`: of each address, why."""
    silent = zip(addresses(bootstrap), silences, strict=True)
    each_one = [f"{host}:{port} {silence}" for (host, port), silence in silent]
    return CliError(each_one[0] if len(each_one) == 1 else f"no broker answers: {', '.join(each_one)}")
