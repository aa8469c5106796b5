"""What a node measures, under the names that dashboards of Apache Kafka ask for."""
