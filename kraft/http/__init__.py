"""What a node shows of itself over HTTP, on the loopback unless it is told otherwise."""
