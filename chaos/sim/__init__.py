"""Whole parts of the cluster in virtual time, from a seed: loop, network, disk."""
