"""What a node observes of itself, and log lines that cannot flood its log."""
