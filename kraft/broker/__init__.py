"""What a broker does beside answering: it registers, heartbeats, and follows the metadata."""
