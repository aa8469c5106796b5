"""Replicas: leader and ISR state, appends and their acknowledgement, moves; all of a broker's."""
