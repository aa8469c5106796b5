"""What a cluster costs as it grows: `python -m benchmarks.scale`."""
