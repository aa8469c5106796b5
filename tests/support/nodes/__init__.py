"""Real nodes and clusters of ours, and certificates for them."""
