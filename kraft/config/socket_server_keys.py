"""Listeners, and the connections that come in on them."""

from __future__ import annotations

from dataclasses import dataclass

from kraft.config.key import CLUSTER_WIDE, KIB, MIB, MINUTE, SECOND, key
from metadata_quorum.foundation.primitives import INT_MAX


@dataclass(init=False, repr=False, eq=False, frozen=True, kw_only=True)
class SocketServerKeys:
    """Kafka's SocketServerConfigs."""

    listeners: str = key("PLAINTEXT://:9092", "NAME://HOST:PORT,...; an empty host means every interface")
    advertised_listeners: str | None = key(
        None, "addresses that clients and other nodes connect to; the listeners if not set"
    )
    controller_listener_names: tuple[str, ...] = key(
        (), "listeners of the controllers, Raft's frames included"
    )
    inter_broker_listener_name: str | None = key(None, "listener for fetches between brokers")
    security_inter_broker_protocol: str = key(
        "PLAINTEXT", "names the inter-broker listener where inter.broker.listener.name does not",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )  # fmt: skip
    listener_security_protocol_map: str = key(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "security protocol of each listener, by its name",
    )  # fmt: skip
    kraft_peer_addresses: str = key(
        "",
        "ID@HOST:PORT,... of brokers that this node reaches elsewhere than they advertise: a tunnel, a proxy",
    )
    kraft_http_port: int | None = key(None, "port of the console, /api, /metrics, /status, /ready",
                                      minimum=0, maximum=65535)  # fmt: skip
    kraft_http_host: str = key(
        "127.0.0.1",
        "address of that port; others than the loopback's are for networks that strangers do not reach: "
        "/metrics and /status ask for no login",
    )
    kraft_http_writes: bool = key(
        False, "whether the console may produce messages, by those who have the right to WRITE"
    )
    kraft_http_faults_dir: str | None = key(
        None,
        "directory of the cluster of `kraft chaos up` whose nodes and links the console may break, by those "
        "who have the right to ALTER the cluster; with kraft.http.writes",
    )

    max_connections: int = key(
        INT_MAX, "most connections, on all listeners together", minimum=0, update=CLUSTER_WIDE
    )
    max_connections_per_ip: int = key(
        INT_MAX,
        "most connections of one IP address, on all listeners together",
        minimum=0,
        update=CLUSTER_WIDE,
    )
    max_connections_per_ip_overrides: str = key(
        "", "ADDRESS:COUNT,... addresses with another limit than max.connections.per.ip", update=CLUSTER_WIDE
    )
    connections_max_idle_ms: int = key(
        10 * MINUTE, "a connection without requests is closed after this", bits=64
    )
    socket_request_max_bytes: int = key(100 * MIB, "a longer frame is refused before it is read", minimum=1)
    sasl_server_max_receive_size: int = key(
        512 * KIB, "the same before a client has authenticated, on a listener that asks for it", minimum=1
    )
    kraft_request_min_bytes_per_second: int = key(
        4 * KIB,
        "a request that arrives more slowly than this for 30 s closes its connection; while memory "
        "is short, a large one must arrive at 1 MiB/s; 0: no bound, while memory is not short",
        minimum=0,
    )
    socket_send_buffer_bytes: int = key(100 * KIB, "accepted; the system sizes socket buffers", minimum=-1)
    socket_receive_buffer_bytes: int = key(100 * KIB, "accepted; the system sizes socket buffers", minimum=-1)
    socket_listen_backlog_size: int = key(50, "most connections that wait to be accepted", minimum=1)
    socket_connection_setup_timeout_ms: int = key(
        10 * SECOND, "accepted; nodes give a new connection one second and try again", bits=64
    )
    socket_connection_setup_timeout_max_ms: int = key(
        30 * SECOND, "accepted; see socket.connection.setup.timeout.ms", bits=64
    )
    queued_max_requests: int = key(500, "most unanswered requests of one connection", minimum=1)
    queued_max_request_bytes: int = key(
        256 * MIB,
        "bytes of unanswered requests per listener above which reading pauses; Kafka's default is no bound",
        minimum=-1, bits=64,
    )  # fmt: skip
    request_timeout_ms: int = key(30 * SECOND, "how long a node waits for another node's answer")
