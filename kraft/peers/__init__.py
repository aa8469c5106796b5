"""Connections to other nodes: controllers, leaders, voters, brokers that a coordinator writes markers to."""
