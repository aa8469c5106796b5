"""Clients of a simulated cluster: they speak Kafka's protocol through kraft/net/client.py, and record the
responses as the lab's clients do (chaos/history.py)."""
