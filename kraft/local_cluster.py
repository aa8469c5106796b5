"""Several nodes on this machine, each a process of its own (being built)."""

from __future__ import annotations


class LocalCluster:
    """Placeholder until the next commit."""
