"""A node's configuration: its keys, server.properties, and what changes while it runs."""
