"""Chaos on real processes: a local cluster whose links, disks, clocks and nodes break when told to."""
