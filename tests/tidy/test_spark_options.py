"""The options that docs/SPARK.md names are those of the connector."""

from __future__ import annotations

import re

from spark_connector.client_properties import unknown_property
from spark_connector.options import CLIENT_PREFIX, SINK_NAMES, SOURCE_NAMES
from tests.tidy.sources import text_of

TABLE = re.compile(r"^\| option \|.*\n\|[-| ]+\n((?:\|.*\n)+)", re.MULTILINE)


def test_the_documented_options_are_those_of_the_connector():
    rows = [
        row.split("|")[1] for table in TABLE.findall(text_of("docs/SPARK.md")) for row in table.splitlines()
    ]
    named = {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    assert {name for name in named if not name.startswith(CLIENT_PREFIX)} == {*SOURCE_NAMES, *SINK_NAMES}


def test_the_documented_properties_are_those_of_the_client():
    named = re.findall(rf"`{re.escape(CLIENT_PREFIX)}([\w.]+)`", text_of("docs/SPARK.md"))
    assert "bootstrap.servers" in named
    assert {name: unknown_property(name) for name in named if unknown_property(name) is not None} == {}
