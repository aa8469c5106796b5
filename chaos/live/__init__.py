"""Chaos on real processes: a local cluster whose links, disks, clocks and nodes can be broken on purpose."""
