"""How each listener of a node is secured, and its own connections: TLS, logins, and the principals they give.

    server.properties -> listener_keys.py -> here -> listeners -> net/server.py
                                                  -> logins    -> api/sasl.py
                                                  -> to_brokers, to_controllers -> its own connections

Files are read when the node is made, which one that cannot be used stops, and again by `renew`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable

from kraft.config.node_config import Config
from kraft.net.connection_security import PLAINTEXT
from kraft.net.listener import ListenerSecurity
from kraft.net.sasl import LoginRules
from kraft.node.certificate_ends import day_of
from kraft.node.listener_keys import ListenerKeys, between_nodes
from metadata_quorum.foundation.errors import FatalError
from metadata_quorum.foundation.supervision import supervised

log = logging.getLogger(__name__)


class NodeSecurity:
    """The security of one node's listeners and connections. Raises `FatalError` (BAD_CONFIG)."""

    def __init__(self, config: Config) -> None:
        self.listeners: dict[str, ListenerSecurity] = {}
        self.logins: dict[str, LoginRules] = {}
        self.certificate_ends: dict[str, int] = {}
        """When the node's certificate for a listener ends, in seconds since 1970."""
        for endpoint in config.bound_listeners:
            keys = ListenerKeys(config, endpoint.name)
            self.listeners[endpoint.name] = accepting = keys.listener_security()
            if accepting.asks_login:
                self.logins[endpoint.name] = keys.login_rules()
        self._own = {
            name: ListenerKeys(config, name).connection_security(mechanism_key)
            for name, mechanism_key in between_nodes(config).items()
        }
        """Of the node's own connections, by the listener that they go to."""
        self.to_controllers = self._own[config.controller_listener_names[0]]
        self.to_brokers = self._own[config.inter_broker_listener] if config.is_broker else PLAINTEXT
        for name in self._names:
            self._note_end(ListenerKeys(config, name))

    @property
    def uses_tls(self) -> bool:
        listeners, own = self.listeners.values(), self._own.values()
        return any(each.tls is not None for each in listeners) or any(each.tls is not None for each in own)

    @property
    def _names(self) -> Iterable[str]:
        return dict.fromkeys((*self.listeners, *self._own))

    def renew(self, config: Config) -> None:
        """Read keys, certificates and authorities again, for new connections, also the node's own; blocks.
        Where a listener's files cannot all be used, what was read before stays."""
        for name in self._names:
            keys = ListenerKeys(config, name)
            try:
                keys.renew(self.listeners.get(name), self._own.get(name))
            except FatalError as error:
                log.error("the certificate for %s is not renewed: %s", name, error)
            else:
                before = self.certificate_ends.get(name)
                end = self._note_end(keys)
                if end != before and end is not None:
                    log.info("the certificate for %s is renewed, and good until %s", name, day_of(end))

    def _note_end(self, keys: ListenerKeys) -> int | None:
        end = keys.certificate_end()
        if end is None:
            self.certificate_ends.pop(keys.listener, None)
        else:
            self.certificate_ends[keys.listener] = end
        return end


class CertificateRenewal:
    """One at a time, and the newest configuration last: of two side by side the older could end later."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, renew: Callable[[Config], Coroutine[object, object, None]]
    ) -> None:
        self._loop = loop
        self._renew = renew
        self._next: Config | None = None
        self._is_running = False

    def begin(self, config: Config) -> None:
        self._next = config
        if not self._is_running:
            self._is_running = True
            supervised(self._loop, self._run(), "certificates")

    async def _run(self) -> None:
        try:
            while self._next is not None:
                config, self._next = self._next, None
                await self._renew(config)
        finally:
            self._is_running = False
