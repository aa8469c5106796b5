"""Apache Kafka beside the tests: a node of it, its shell tools."""
