"""What speaks to other nodes: controllers, leaders, voters, coordinators' brokers."""
