"""What the suite does around its tests: rows, workers, samples, the watch for stalls."""
