"""`make grow`: kraft becomes Apache Kafka, node by node, while flights stream through the cluster."""
