"""Raft: one voter of the metadata quorum, on PySyncObj's elections, counting and apply order.

`port.py` is what the rest of the house sees; `voter.py` implements it.
"""
