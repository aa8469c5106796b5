"""The configuration of a node with a listener for brokers and clients, IN, and one for controllers."""

from __future__ import annotations

from kraft.config.node_config import Config


def config(**more: str) -> Config:
    return Config.from_properties(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@a:2",
            "controller.listener.names": "CONTROLLER",
            "listeners": "IN://a:1,CONTROLLER://a:2",
            "inter.broker.listener.name": "IN",
            "log.dirs": "d",
            **{name.replace("__", "-").replace("_", "."): value for name, value in more.items()},
        }
    )


def mapped(protocol: str) -> str:
    return f"IN:{protocol},CONTROLLER:PLAINTEXT"
