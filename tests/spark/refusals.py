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

from tests.spark.topics import Collected, Topics, read, stream


def deny(admin: AdminClient, kind: ResourceType, name: str, operation: AclOperation) -> None:
    """From whoever does not log in."""
    entry = AclBinding(
        kind, name, ResourcePatternType.PREFIXED, "User:ANONYMOUS", "*", operation, AclPermissionType.DENY
    )
    for done in admin.create_acls([entry]).values():
        done.result()


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
