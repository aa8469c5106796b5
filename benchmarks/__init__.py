"""`make bench`: kraft measured against Apache Kafka on the same machine with the same stock client."""
