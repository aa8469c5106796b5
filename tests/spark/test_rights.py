"""Spark on a cluster of ours that has an authorizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from tests.cluster import running_cluster
from tests.spark.refusals import check_refusals
from tests.spark.topics import Topics

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.mark.row("S1", "U4")
def test_no_rights(
    spark: SparkSession, tmp_path: Path, free_ports: Callable[[int], list[int]], checkpoint: str
):
    with running_cluster(tmp_path / "guarded", free_ports(3), AUTHORIZER) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        check_refusals(spark, Topics(cluster.bootstrap), admin, checkpoint)
