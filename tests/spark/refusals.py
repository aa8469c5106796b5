"""What Spark says for who has no rights, on whichever cluster: one clear error, and soon."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_connector.connections import close_clusters
from spark_connector.errors import SinkError
from tests.spark.micro_batches import Sink, committed
from tests.spark.topics import Collected, Topics, read, stream


def grant(
    admin: AdminClient,
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> None:
    """To whoever does not log in. What is named in no rule is everybody's."""
    entry = AclBinding(kind, name, ResourcePatternType.PREFIXED, "User:ANONYMOUS", "*", operation, permission)
    for done in admin.create_acls([entry]).values():
        done.result()


def deny(admin: AdminClient, kind: ResourceType, name: str, operation: AclOperation) -> None:
    grant(admin, kind, name, operation, AclPermissionType.DENY)


def check_refusals(spark: SparkSession, topics: Topics, admin: AdminClient, checkpoint: str) -> None:
    """For who may not see a topic, read it, write to it, or have a transaction. `admin` may deny."""
    unseen, unread, unwritten, free = (
        topics.make(1, name) for name in ("unseen", "unread", "unwritten", "free")
    )
    for name in (unread, unwritten, free):
        topics.fill(name, range(3), partitions=1)
    deny(admin, ResourceType.TOPIC, unseen, AclOperation.DESCRIBE)
    deny(admin, ResourceType.TOPIC, unread, AclOperation.READ)
    deny(admin, ResourceType.TOPIC, unwritten, AclOperation.WRITE)
    deny(admin, ResourceType.TRANSACTIONAL_ID, "not-mine", AclOperation.WRITE)

    def save(topic: str, **options: str) -> None:
        given = {**topics.options(), "topic": topic, **options}
        spark.sql("select 'v' as value").write.format("kraft").options(**given).mode("append").save()

    for name in (unseen, unread):
        with pytest.raises(PySparkException, match=f"TOPIC_AUTHORIZATION_FAILED.*{name}"):
            read(spark, topics.options(name)).count()
        with pytest.raises(PySparkException, match=f"TOPIC_AUTHORIZATION_FAILED.*{name}"):
            stream(spark, topics.options(name), f"{checkpoint}-{name}", Collected()).awaitTermination()
    with pytest.raises(PySparkException, match=rf"KAFKA_WRITE_FAILED.*{unwritten}.*(?i:authorization)"):
        save(unwritten)
    with pytest.raises(PySparkException, match=r"KAFKA_(TRANSACTION|WRITE)_FAILED.*(?i:authorization)"):
        save(unwritten, transactional="true")
    with pytest.raises(PySparkException, match=r"KAFKA_TRANSACTION_FAILED.*(?i:authorization)"):
        save(free, transactional="true", transactionalIdPrefix="not-mine")
    save(free)
    assert read(spark, topics.options(free)).count() == 4


def check_a_sink_that_may_only_write(topics: Topics, admin: AdminClient) -> None:
    """A mark takes the right to read a topic, which need not be the one that is written to."""
    out, readable = topics.make(1, "write-only"), topics.make(1, "readable")
    grant(admin, ResourceType.TOPIC, out, AclOperation.WRITE)
    refused = Sink(topics, out)
    with pytest.raises(SinkError, match=r"TOPIC_AUTHORIZATION_FAILED.*Set 'transactionalMarkTopic'"):
        refused.writer.commit(refused.tasks(["a"]), 0)
    refused.writer.abort([], 0)
    sink = Sink(topics, out, transactionalMarkTopic=readable)
    for _ in range(2):
        sink.writer.commit(sink.tasks(["a"]), 0)
    with pytest.raises(SinkError, match="KAFKA_TRANSACTION_OTHER_ROWS"):
        sink.writer.commit(sink.tasks(["b"]), 0)
    sink.writer.abort([], 0)
    grant(admin, ResourceType.TOPIC, out, AclOperation.READ)
    assert committed(topics, out, 1) == [b"a"]
    close_clusters()
