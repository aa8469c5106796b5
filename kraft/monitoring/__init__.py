"""What a node notices of itself, and how it says so without flooding its log."""
