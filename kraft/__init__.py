"""The process: everything that touches a socket, a screen or the codec of Kafka's messages.

`node/node.py` wires one node from its `config/node_config.py`; `net/` frames bytes, `wire/` turns them into
messages, `api/` answers them; `cli/` is the command line, `local/local_cluster.py` starts several
nodes. What a broker keeps lies below, in `fetch`, `data_plane` and `metadata_quorum`, none of
which knows that sockets exist.
"""
