"""Connections, both ends: frames, order, limits, TLS and SASL."""
