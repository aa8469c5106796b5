"""Spark's way in and out: a source and a sink for any Kafka cluster, without a jar."""
