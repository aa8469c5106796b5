"""Bugs of the past, of Kafka, of PySyncObj and of other stores, as edits of our own code; and the tests that
find them. `make mutants` applies each to a copy of the sources and runs what has to find it."""
