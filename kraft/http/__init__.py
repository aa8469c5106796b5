"""What a node shows of itself over HTTP, on 127.0.0.1 only: its state as JSON."""
