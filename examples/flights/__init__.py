"""`make demo`: 336,776 real flights through three nodes and Spark, while a node and the query are killed.

stream.py drives a stock producer and a stock consumer from one loop and kills the node; audit.py judges what
was acknowledged and read; isr.py watches the replicas. query.py is the Spark query, a process that
spark_run.py starts, kills and starts again; results.py holds what it wrote against the source file.
screen.py and picture.py show it all; plan.py has what they agree on.
"""
