"""Real nodes and clusters of ours."""
