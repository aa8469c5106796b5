"""Clusters on this machine: nodes as processes on free ports."""
