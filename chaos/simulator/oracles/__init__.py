"""What watches a simulation: Raft on durable bytes, committed metadata, replicas, recovery.

An oracle believes nobody: it has its own memory of what was promised, and compares. What it finds it reports
to the run; it raises nothing, because the product would take that for an error of its own.
"""
