"""What every client has used lately, judged by what it may use.

    api/produce, api/fetch, dispatch, api/topics, net/connections -> here: so many bytes, so much time, ...
        -> seconds to pause, which the answer tells and for which the connection is not read (KIP-219)

A node has one while any quota is set. Pure: `now` is the loop's time.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, TypeVar

from data_plane.quotas.limits import LONGEST_NAME, QuotaClient, QuotaLimit, QuotaLimits, limits_of
from data_plane.quotas.rates import QuotaWindow, SampledRate, TokenBucket
from metadata_quorum.foundation.quota_types import QuotaEntityKey, QuotaType

PERCENT: Final = 100.0
"""A request_percentage of 100 is the whole of one thread; we have one."""

KEPT_IDLE: Final = 1024
"""Meters that there may be before the idle ones are looked for."""
LOOKED_AT: Final = 2
"""Then each use of a meter looks at so many, in turn: no turn of the loop looks at all that many strangers
have left, and what they have left goes with the requests of others, too."""
SHOWN_S: Final = 3600.0
"""Who has used nothing for so long is not shown: Kafka's INACTIVE_SENSOR_EXPIRATION_TIME_SECONDS."""

Key = tuple[QuotaType, str | None, str | None]
Meter = TypeVar("Meter", SampledRate, TokenBucket)


class ClientQuotas:
    """See the module."""

    def __init__(self, window: QuotaWindow, mutation_window: QuotaWindow) -> None:
        """`mutation_window` is controller.quota.window.*"""
        self._window = window
        self._mutation_window = mutation_window
        self._limits = limits_of({})
        self._rates: OrderedDict[Key, SampledRate] = OrderedDict()
        self._buckets: OrderedDict[Key, TokenBucket] = OrderedDict()
        """Both with those first that are looked at next."""
        self._pauses: dict[Key, tuple[float, float]] = {}
        """The last pause of each meter, in seconds, and when it was told."""

    def take(self, quotas: Mapping[QuotaEntityKey, Mapping[str, float]]) -> None:
        """The quotas are these from now on."""
        self.use(limits_of(quotas))

    def use(self, limits: dict[QuotaType, QuotaLimits]) -> None:
        """The same, of `limits_of`; they are ours to change. What was counted counts on."""
        self._limits = limits

    def change(self, quotas: Mapping[QuotaEntityKey, Mapping[str, float]]) -> None:
        """These entities' quotas are these from now on; those of all others, of which there may be tens of
        thousands, stay as they are."""
        for entity, values in quotas.items():
            for kind, limits in self._limits.items():
                limits.change(entity, values.get(kind))

    @property
    def kept(self) -> int:
        """How many meters there are, of clients that were seen lately."""
        return len(self._rates) + len(self._buckets)

    def limits(self, kind: QuotaType) -> QuotaLimits:
        return self._limits[kind]

    # -- bytes and time: a mean rate -------------------------------------------------------------

    def used(self, kind: QuotaType, client: QuotaClient, amount: float, now: float) -> float:
        """Count, and tell how long the client must pause."""
        limit = self._limits[kind].of_client(client)
        if limit is None:
            return 0.0
        rate = self._rate(kind, limit, now)
        rate.record(amount, now)
        pause_s = rate.excess_s(limit.value, now)
        if pause_s > 0:
            # One sample's length is the most that a client is kept waiting for its time.
            pause_s = min(pause_s, self._window.sample_s) if kind is QuotaType.REQUEST_TIME else pause_s
            self._pauses[_key(kind, limit)] = pause_s, now
        return pause_s

    def measured(self, kind: QuotaType, now: float) -> Iterator[tuple[str, str, float]]:
        """What has been used lately: user, client id (empty where that does not matter), rate per second."""
        for (_, user, client_id), rate in self._shown(kind, now):
            yield user or "", client_id or "", rate.measure(now)

    def pauses(self, kind: QuotaType, now: float) -> Iterator[tuple[str, str, float]]:
        """For how many seconds each of them was last told to pause; 0 where that was long ago."""
        for key, _ in self._shown(kind, now):
            pause_s, at = self._pauses.get(key, (0.0, now))
            yield key[1] or "", key[2] or "", pause_s if now - at < self._window.span_s else 0.0

    def _shown(self, kind: QuotaType, now: float) -> Iterator[tuple[Key, SampledRate]]:
        for key, rate in self._rates.items():
            if key[0] is kind and not rate.idle(now - SHOWN_S):
                yield key, rate

    def give_back(self, kind: QuotaType, client: QuotaClient, amount: float, now: float) -> None:
        """What was counted is not handed out after all."""
        limit = self._limits[kind].of_client(client)
        if limit is not None:
            self._rate(kind, limit, now).record(-amount, now)

    def most_at_once(self, kind: QuotaType, client: QuotaClient) -> float | None:
        """More in one answer would be over the limit even after a long silence; None: there is no limit."""
        limit = self._limits[kind].of_client(client)
        return None if limit is None else limit.value * self._window.whole_s

    # -- changes of the cluster's metadata: a credit ----------------------------------------------

    def mutated(self, client: QuotaClient, count: int, now: float, *, strict: bool) -> tuple[bool, float]:
        """Count partitions to be created or deleted. Returns whether it may be done, and how long to pause.
        `strict`: the client understands a refusal, and what it owes must be back before it may go on."""
        limit = self._limits[QuotaType.MUTATIONS].of_client(client)
        if limit is None:
            return True, 0.0
        bucket = self._bucket(limit, now)
        owed_s = bucket.excess_s(limit.value, now)
        if strict and owed_s > 0:
            return False, owed_s
        bucket.record(count, limit.value, now)
        return True, 0.0 if strict else bucket.excess_s(limit.value, now)

    # -- connections -------------------------------------------------------------------------------

    def connected(self, address: str, now: float) -> float:
        """Count a new connection; how long it must be kept out, after which it is closed."""
        limit = self._limits[QuotaType.CONNECTIONS].of_address(address)
        if limit is None:
            return 0.0
        rate = self._rate(QuotaType.CONNECTIONS, QuotaLimit((address, None), limit), now)
        rate.record(1, now)
        pause_s = min(rate.excess_s(limit, now), self._window.sample_s)
        if pause_s > 0:
            rate.record(-1, now)  # it is not let in
        return pause_s

    # -- inside -----------------------------------------------------------------------------------

    def _rate(self, kind: QuotaType, limit: QuotaLimit, now: float) -> SampledRate:
        key = _key(kind, limit)
        self._forget_idle(now)
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = SampledRate(self._window)
        return rate

    def _bucket(self, limit: QuotaLimit, now: float) -> TokenBucket:
        key = _key(QuotaType.MUTATIONS, limit)
        self._forget_idle(now)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(self._mutation_window)
        return bucket

    def _forget_idle(self, now: float) -> None:
        """Client ids come and go: forget those whose meters say nothing any more."""
        if self.kept < KEPT_IDLE:
            return
        for key in _idle_of_the_next(self._rates, now):
            del self._rates[key]
            self._pauses.pop(key, None)
        for key in _idle_of_the_next(self._buckets, now):
            del self._buckets[key]


def _idle_of_the_next(meters: OrderedDict[Key, Meter], now: float) -> list[Key]:
    """Of those that are looked at. They go behind all others, which are looked at before they are again."""
    looked_at = list(islice(meters, LOOKED_AT))
    for key in looked_at:
        meters.move_to_end(key)
    return [key for key in looked_at if meters[key].idle(now)]


def _key(kind: QuotaType, limit: QuotaLimit) -> Key:
    user, client_id = limit.shared_by
    if client_id is not None and len(client_id) > LONGEST_NAME:
        client_id = hashlib.sha256(client_id.encode()).hexdigest()
    return kind, user, client_id
