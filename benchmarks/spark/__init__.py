"""`python -m benchmarks.spark`: our Spark source and sink measured against Spark's own, on one cluster."""
