"""Breaking the cluster on purpose, and checking what it promised: `live/` with real processes,
`sim/` from a seed in virtual time.
"""
