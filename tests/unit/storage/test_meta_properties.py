"""meta.properties: what is written is read again, and is as Java would write it."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraft.storage.meta_properties import read_meta_properties, write_meta_properties
from metadata_quorum.foundation.disk import OsDisk
from tests.support.may_block import MAY_BLOCK

DISK = OsDisk()


@pytest.mark.row("L1")
def test_meta_properties(tmp_path):
    path = str(tmp_path / "meta.properties")
    write_meta_properties(
        DISK,
        path,
        cluster_id="4L6g3nShT-eMCtK--X86sw",
        node_id=3,
        directory_id=UUID(int=7),
        may_block=MAY_BLOCK,
    )
    assert read_meta_properties(DISK, path, MAY_BLOCK) == {
        "version": "1",
        "cluster.id": "4L6g3nShT-eMCtK--X86sw",
        "node.id": "3",
        "directory.id": "AAAAAAAAAAAAAAAAAAAABw",
    }


@pytest.mark.row("L1")
@pytest.mark.parametrize(
    ("cluster_id", "written"),
    [("flights:prod", r"flights\:prod"), ("a==", r"a\=\="), (r"#1\2!", r"\#1\\2\!")],
)
def test_a_cluster_id_is_written_and_read_as_java_does(tmp_path, cluster_id, written):
    path = tmp_path / "meta.properties"
    write_meta_properties(
        DISK, str(path), cluster_id=cluster_id, node_id=3, directory_id=UUID(int=7), may_block=MAY_BLOCK
    )
    assert f"\ncluster.id={written}\n" in path.read_text()
    assert read_meta_properties(DISK, str(path), MAY_BLOCK)["cluster.id"] == cluster_id
