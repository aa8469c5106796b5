"""Bytes of Kafka's protocol: its schemas are kio's, its readers and writers ours."""
