"""The load generator: a process of its own, so that its CPU time and its GIL are not the bench's.

`python -m benchmarks.client` reads one job (JSON) from standard input, runs it with confluent-kafka and
writes one result (JSON) to standard output. The jobs: throughput.py, latency.py, probe.py,
groups.py, transactions.py.
"""
