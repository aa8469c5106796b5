"""The cluster's metadata: its records, their log, the image they make, its snapshots."""
