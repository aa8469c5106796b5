"""What can happen to a cluster and its clients; a file per subject, `table.py` lists them all."""
