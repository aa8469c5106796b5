"""What watches a simulation: Raft on durable bytes, committed metadata, replicas, recovery.

An oracle trusts no node: it remembers itself what was promised, and compares. It reports violations to the
run and raises nothing, because the product would take that for an error of its own."""
