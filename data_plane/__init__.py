"""What a broker keeps: logs on disk, the replication rules around them, waiting requests and
coordinators. No socket and no codec of requests: `kraft` brings those.
"""
