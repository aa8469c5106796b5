"""Following and reading: how a follower copies its leader's log, and how a leader answers the
fetches of followers and consumers. The network is a port (`leader_endpoint.py`).
"""
