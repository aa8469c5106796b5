"""Quotas of clients: how much a user, a client id or an address may ask of this node. Pure; time comes in."""
