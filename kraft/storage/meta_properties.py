"""`meta.properties`, Kafka's file that says which node of which cluster a log dir belongs to.

#
version=1
cluster.id=MkU3OEVBNTcwNTJENDM2Qg
node.id=1
directory.id=Zb1Rk9CXQ2evHyGP8vSNlQ
"""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk
from metadata_quorum.foundation.uuids import uuid_text

META_PROPERTIES: Final = "meta.properties"
_ESCAPED: Final = re.compile(r"\\([:=#! \\])")
"""How Java writes these characters: Apache Kafka takes any text for a cluster id."""
_BACKSLASHED: Final = r"\\\1"
_TO_ESCAPE: Final = re.compile(r"([:=#!\\])")


def write_meta_properties(
    disk: Disk, path: str, *, cluster_id: str, node_id: int, directory_id: UUID, may_block: MayBlock
) -> None:
    """Replace the file (blocks until it is durable). Raises OSError."""
    lines = (
        "#",
        "version=1",
        f"cluster.id={_TO_ESCAPE.sub(_BACKSLASHED, cluster_id)}",
        f"node.id={node_id}",
        f"directory.id={uuid_text(directory_id)}",
        "",
    )
    disk.write_atomic(path, "\n".join(lines).encode(), may_block)


def read_meta_properties(disk: Disk, path: str, may_block: MayBlock) -> dict[str, str]:
    """Its fields as text (`cluster.id`, `node.id`, `directory.id`, `version`); empty without a file. Raises
    OSError."""
    if not disk.exists(path):
        return {}
    fields: dict[str, str] = {}
    for line in disk.read_bytes(path, may_block).decode("utf-8", "replace").splitlines():
        key, separator, value = line.partition("=")
        if separator and not line.lstrip().startswith("#"):
            fields[key.strip()] = _ESCAPED.sub(r"\1", value.strip())
    return fields
