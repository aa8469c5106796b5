"""What a node tells over HTTP, on 127.0.0.1 only: its state as JSON. Page and metrics come later."""
