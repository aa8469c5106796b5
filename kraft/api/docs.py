"""docs/APIS.md, written from the API table: `python -m kraft.api.docs > docs/APIS.md`."""

from __future__ import annotations

from collections.abc import Iterator

from kraft.api.row import ApiRow
from kraft.api.table import ROWS

HEAD = """# APIs

Written by `make docs` from the API table in `kraft/api/table.py`; do not edit.

The ranges of versions are those of Apache Kafka 4.1. A request for any other API ends the
connection, as in Kafka.
*Authorization*: the operations and resources that a principal must be allowed, where the node has an
authorizer. *Forwarded*: a broker hands the request on to the active controller.
"""


def lines() -> Iterator[str]:
    yield HEAD
    yield "| key | API | versions | listeners | authorization | forwarded |"
    yield "|-|-|-|-|-|-|"
    for row in ROWS.values():
        yield _line(row)


def _line(row: ApiRow) -> str:
    listeners = ", ".join(sorted(role.value for role in row.listeners))
    name = f"{row.name} (ours, between nodes)" if row.internal else row.name
    if not row.advertised:
        name += " (not in ApiVersions)"
    forwarded = "yes" if row.forwarded else ""
    authorization = "; ".join(each.required for each in row.authorization if each.required) or "none"
    versions = f"{row.min_version}-{row.max_version}"
    return f"| {row.key} | {name} | {versions} | {listeners} | {authorization} | {forwarded} |"


if __name__ == "__main__":
    print("\n".join(lines()))  # noqa: T201 - its purpose
