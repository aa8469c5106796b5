"""Kafka's APIs as this node answers them: one module per family, one row per API."""
