"""`kraft user`: SCRAM credentials.

A password is typed at a prompt or read from a file, never given on the command line, where other users could
see it; it is hashed here, and is neither sent nor stored.
"""

from __future__ import annotations

import random
from typing import Annotated

import typer

from kraft.cli.bootstrap import any_broker
from kraft.cli.confluent_client import DEFAULT_BOOTSTRAP, Bootstrap, ReadingBootstrap
from kraft.cli.errors import CliError, UsageError
from kraft.cli.tables import prints_table, show
from kraft.cli.text_file import opened
from kraft.cli.wire_client import raise_for, request
from kraft.wire.api_keys import ApiKey
from metadata_quorum.security.scram import (
    BY_SASL_NAME,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SALT_BYTES,
    ScramMechanism,
    salted,
)

app = typer.Typer(no_args_is_help=True)

Mechanisms = Annotated[
    list[str], typer.Option("--mechanism", metavar="|".join(BY_SASL_NAME), help="One or both.")
]


@app.command("list")
@prints_table
def list_(
    names: Annotated[list[str], typer.Argument(metavar="[USER]...", help="Only these.")] = [],  # noqa: B006
    bootstrap: ReadingBootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List users, their mechanisms and how often their passwords are hashed."""
    rows = [
        (user, ScramMechanism(mechanism).sasl_name, iterations)
        for user, mechanism, iterations in _credentials(bootstrap, names)
    ]
    show(("user", "mechanism", "iterations"), sorted(rows))


@app.command()
def add(
    name: str,
    mechanism: Mechanisms = ["SCRAM-SHA-512"],  # noqa: B006
    iterations: Annotated[
        int,
        typer.Option(min=1, max=MAX_ITERATIONS, help="More make a stolen credential harder to use."),
    ] = MIN_ITERATIONS,
    password_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Its first line; - for standard input.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Let a user log in, or give one another password."""
    mechanisms = _mechanisms(mechanism)
    password = _password(name, password_file)
    upsertions = []
    for each in mechanisms:
        salt = random.SystemRandom().randbytes(SALT_BYTES)
        upsertions.append(
            {
                "name": name,
                "mechanism": int(each),
                "iterations": iterations,
                "salt": salt,
                "salted_password": salted(each, password, salt, max(iterations, 1)),
            }
        )
    _alter(bootstrap, {"deletions": [], "upsertions": upsertions})
    print(f"User {name} can log in by {', '.join(each.sasl_name for each in mechanisms)}.")


@app.command()
def delete(
    name: str,
    mechanism: Annotated[
        list[str], typer.Option("--mechanism", metavar="|".join(BY_SASL_NAME), help="Only this one.")
    ] = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Take a user's credentials away: all of them, or one mechanism's. Who is logged in stays so."""
    known = [kind for _, kind, _ in _credentials(bootstrap, [name])]
    mechanisms = [int(each) for each in _mechanisms(mechanism)] or known
    deletions = [{"name": name, "mechanism": each} for each in mechanisms]
    _alter(bootstrap, {"deletions": deletions, "upsertions": []})
    print(f"Deleted what user {name} could log in with.")


def _mechanisms(names: list[str]) -> list[ScramMechanism]:
    for name in names:
        if name not in BY_SASL_NAME:
            raise UsageError(f"{name}: no such mechanism; there are {', '.join(BY_SASL_NAME)}")
    return [BY_SASL_NAME[name] for name in dict.fromkeys(names)]


def _password(user: str, file: str | None) -> str:
    if file is None:
        return str(typer.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True))
    with opened(file) as text:
        password = text.readline().rstrip("\r\n")
    if not password:
        raise CliError(f"{file}: its first line is empty: it should be the password")
    return password


def _credentials(bootstrap: str, names: list[str]) -> list[tuple[str, int, int]]:
    answer = request(
        any_broker(bootstrap),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        (0, 0),
        {"users": [{"name": name} for name in names]},
    )
    raise_for(answer.error_code, answer.error_message or "")
    for result in answer.results:
        raise_for(result.error_code, result.error_message or "")
    return [
        (result.user, info.mechanism, info.iterations)
        for result in answer.results
        for info in result.credential_infos
    ]


def _alter(bootstrap: str, fields: dict[str, object]) -> None:
    for result in request(any_broker(bootstrap), ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), fields).results:
        raise_for(result.error_code, result.error_message or "")
