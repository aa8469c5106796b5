"""`make demo`: 336,776 real flights through three nodes, one of which is killed on the way.

stream.py drives a stock producer and a stock consumer from one loop and kills the node; audit.py judges
what was acknowledged and read; isr.py watches the replicas; screen.py shows it.
"""
