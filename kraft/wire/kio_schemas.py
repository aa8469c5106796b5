"""What we use of kio: Kafka's message schemas as dataclasses, and where they are found.

kio registers its types with hypothesis wherever that is installed, which costs a quarter of a second
and 9 MB at the start of every node that runs beside a test suite; so hypothesis is hidden from it.
"""

import sys

_has_hypothesis = "hypothesis" in sys.modules
if not _has_hypothesis:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
try:
    from kio.index import load_request_schema, load_response_schema
    from kio.schema.index import api_key_map, schema_name_map
    from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional
finally:
    if not _has_hypothesis:
        del sys.modules["hypothesis"]

__all__ = [
    "EntityField",
    "EntityTupleField",
    "api_key_map",
    "classify_field",
    "is_optional",
    "load_request_schema",
    "load_response_schema",
    "schema_name_map",
]
