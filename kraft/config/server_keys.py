"""Who a node is, and where it keeps what it has."""

from __future__ import annotations

from dataclasses import dataclass

from kraft.config.key import Required, key


@dataclass(init=False, repr=False, eq=False, frozen=True, kw_only=True)
class ServerKeys:
    """Kafka's ServerConfigs."""

    process_roles: tuple[str, ...] = key(
        Required.TOKEN, "roles of this node", choices=("broker", "controller")
    )
    node_id: int = key(Required.TOKEN, "the node's number, unique in the cluster", minimum=0)
    broker_rack: str | None = key(None, "rack of the node; replicas are spread over racks")
    log_dir: str | None = key(
        None, "one directory for partitions; none by default, where Kafka has one that a reboot empties"
    )
    log_dirs: tuple[str, ...] = key((), "directories for partitions; takes precedence over log.dir")
    metadata_log_dir: str | None = key(
        None, "directory of the metadata log; the first of log.dirs if not set"
    )
