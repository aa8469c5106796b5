"""`make demo`: 336,776 real flights through three nodes and Spark, while a node and the query are killed.

stream.py drives a stock producer and a stock consumer from one loop and kills the node; audit.py checks what
was acknowledged and read; isr.py watches the replicas. query.py is the Spark query, a process that
spark_run.py starts, kills and starts again; results.py compares what it wrote with the source file.
screen.py and picture.py show the results; plan.py has what they share.
"""
