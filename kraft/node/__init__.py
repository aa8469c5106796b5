"""One node: its roles and their wiring, from server.properties to a process that runs."""
