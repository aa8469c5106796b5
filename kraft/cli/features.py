"""`kraft features`: at which levels the cluster runs, and how to raise or lower them.

What a newer version brings is off until all nodes run it and its feature has been raised.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

import typer

from kraft.cli.bootstrap import Address, any_broker
from kraft.cli.confluent_client import DEFAULT_BOOTSTRAP, Bootstrap, ReadingBootstrap, key_values
from kraft.cli.errors import CliError, UsageError
from kraft.cli.numbers import MAX_INT16
from kraft.cli.tables import prints_table, show
from kraft.cli.wire_client import api_versions, raise_for, request
from kraft.wire.api_keys import ApiKey

app = typer.Typer(no_args_is_help=True)

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3
"""UpdateFeatures, upgradeType."""
WITH_FEATURES: Final = (3, 4)
"""The versions of ApiVersions that tell them."""
TIMEOUT_MS: Final = 10_000

Levels = Annotated[
    list[str], typer.Option("--feature", metavar="NAME=LEVEL", help="As metadata.version=27; 0 turns it off.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say whether it could be.")]


@app.command()
@prints_table
def describe(bootstrap: ReadingBootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show the levels that a broker can run at, and those that the cluster runs at."""
    answer = api_versions(any_broker(bootstrap), WITH_FEATURES)
    levels = {each.name: int(each.max_version_level) for each in answer.finalized_features}
    rows = [
        (each.name, each.min_version, each.max_version, levels.get(each.name, 0))
        for each in sorted(answer.supported_features, key=lambda each: str(each.name))
    ]
    about = {"Epoch": int(answer.finalized_features_epoch)}
    show(("feature", "lowest", "highest", "level"), rows, about=about)


@app.command()
def upgrade(feature: Levels, dry_run: DryRun = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Raise levels. Every node has to be able to run at them."""
    _update(bootstrap, feature, UPGRADE, dry_run=dry_run)


@app.command()
def downgrade(
    feature: Levels,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Also where metadata that the lower level lacks is lost.")
    ] = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Lower levels, before nodes go back to an older version."""
    _update(bootstrap, feature, UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE, dry_run=dry_run)


def _update(bootstrap: str, pairs: list[str], upgrade_type: int, *, dry_run: bool) -> None:
    levels = key_values(pairs, "a feature")
    for name, level in levels.items():
        if not level.isdecimal() or int(level) > MAX_INT16:
            raise UsageError(f"{name}={level}: a level is a number; `kraft features describe` shows them")
    address = any_broker(bootstrap)
    _require_known(address, levels)
    fields = {
        "timeout_ms": TIMEOUT_MS,
        "feature_updates": [
            {"feature": name, "max_version_level": int(level), "upgrade_type": upgrade_type}
            for name, level in levels.items()
        ],
        "validate_only": dry_run,
    }
    answer = request(address, ApiKey.UPDATE_FEATURES, (1, 2), fields)
    raise_for(answer.error_code, answer.error_message or "")
    for result in answer.results:
        raise_for(result.error_code, result.error_message or result.feature)
    for name, level in levels.items():
        print(f"{name} {'could be' if dry_run else 'is'} at level {level}.")


def _require_known(address: Address, names: Iterable[str]) -> None:
    """A controller, Kafka's too, takes level 0 of any name for done. Raises `CliError`."""
    answer = api_versions(address, WITH_FEATURES)
    known = {each.name for each in (*answer.supported_features, *answer.finalized_features)}
    for name in names:
        if name not in known:
            raise CliError(f"{name}: there is no such feature; `kraft features describe` shows them")
