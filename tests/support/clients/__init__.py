"""Clients as tests use them: librdkafka, our own, other languages', applications."""
