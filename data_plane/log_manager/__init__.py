"""All logs of a broker: their directories, what lay there at the start, their settings."""
