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
