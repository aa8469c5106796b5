"""Requests that wait for a partition to move on, and their deadlines."""
