"""Fetching, both ends: followers copy their leader's log, a leader answers followers and consumers.

    follower   fetcher_manager -> fetcher -> follower_session, follower (pure) -> LeaderEndpoint
    leader     delayed_fetch -> sessions -> reader -> Partition

The network is a port, `LeaderEndpoint` (kraft/peers/leader_endpoint.py).
"""
