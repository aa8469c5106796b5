"""Authorization of requests: what each API requires, and the node's authorizer."""
