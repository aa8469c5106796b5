"""Quotas at work, without sockets: what a request costs, and how a node keeps its quotas."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from itertools import permutations
from types import SimpleNamespace
from typing import Any, cast

import pytest

from data_plane.quotas.client_quotas import ClientQuotas
from data_plane.quotas.limits import QuotaClient, QuotaLimits
from data_plane.quotas.rates import QuotaWindow
from kraft.api import throttling
from kraft.api.controller_mutation_quota import ControllerMutationQuota
from kraft.api.request_context import RequestContext, Role
from kraft.api.request_cost import RequestCost
from kraft.api.throttling import QuotaUpdates, charge_connection, charge_fetch, charge_produce, throttled
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import encode_response
from metadata_quorum.foundation.errors import BrokerError
from metadata_quorum.foundation.quota_types import USER, QuotaEntityKey, QuotaType
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.records import ClientQuotaRecord, QuotaEntity
from tests.support.contexts import node_context
from tests.unit.replication.cluster import until

pytestmark = pytest.mark.row("R12")


class Stopwatch:
    """Goes on only when its test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_the_steps_of_a_coroutine_count_and_its_waits_do_not() -> None:
    stopwatch = Stopwatch()
    cost = RequestCost(stopwatch, request_bytes=7)

    async def handler(gate: asyncio.Event) -> str:
        stopwatch.now_s += 1
        await gate.wait()
        stopwatch.now_s += 2
        return "done"

    async def run() -> str:
        gate = asyncio.Event()
        task = asyncio.ensure_future(cost.watching(handler(gate)))
        await asyncio.sleep(0)
        stopwatch.now_s += 100
        gate.set()
        return cast(str, await task)

    assert asyncio.run(run()) == "done"
    assert cost.spent_s == 3


def test_what_is_watched_fails_and_is_cancelled_as_it_would_be_by_itself() -> None:
    cleaned_up: list[str] = []

    async def handler(gate: asyncio.Event) -> None:
        try:
            await gate.wait()
            raise KeyError("its own")
        finally:
            cleaned_up.append("yes")

    async def run() -> None:
        for set_first in (True, False):
            gate = asyncio.Event()
            watched = RequestCost(Stopwatch(), 0).watching(handler(gate))
            task: asyncio.Future[Any] = asyncio.ensure_future(watched)
            await asyncio.sleep(0)
            if set_first:
                gate.set()
                with pytest.raises(KeyError):
                    await task
            else:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

    asyncio.run(run())
    assert cleaned_up == ["yes", "yes"]


def test_nothing_is_looked_at_while_nothing_is_limited() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        node = node_context(loop)
        watch = QuotaUpdates(node, ClientQuotas(QuotaWindow(), QuotaWindow()))
        limited = MetadataImage(
            quotas={(("ip", "0:0:0:0:0:0:0:1"),): {"connection_creation_rate": 1.0},
                    (("ip", "localhost"),): {"connection_creation_rate": 2.0}}
        )  # fmt: skip
        watch.take(MetadataDelta.between(EMPTY_IMAGE, limited), limited)
        assert node.quotas is not None
        # Addresses are known by what sockets call them; names by what they stand for.
        assert [charge_connection(node, "::1") > 0 for _ in range(12)][-1]
        await until(
            lambda: charge_connection(node, "127.0.0.1") > 0, "the name is looked up, and the rate used up"
        )
        watch.take(MetadataDelta.between(limited, EMPTY_IMAGE), EMPTY_IMAGE)
        assert node.quotas is None
        assert charge_connection(node, "::1") == 0

    asyncio.run(run())


class TakesAll(ClientQuotas):
    """Counts how often it is given all quotas."""

    times = 0

    def use(self, limits: dict[QuotaType, QuotaLimits]) -> None:
        self.times += 1
        super().use(limits)


def test_a_change_of_one_quota_looks_at_no_others() -> None:
    """Of sixty thousand, that took the loop 50 ms."""

    async def run() -> None:
        node = node_context(asyncio.get_running_loop())
        quotas = TakesAll(QuotaWindow(), QuotaWindow())
        watch, image = QuotaUpdates(node, quotas), EMPTY_IMAGE

        def after(kind: str, name: str, value: float | None, *, heard_of: bool = True) -> MetadataImage:
            delta = MetadataDelta(image)
            entity = QuotaEntity(entity_type=kind, entity_name=name)
            record = ClientQuotaRecord(
                entity=(entity,), key=QuotaType.PRODUCED_BYTES, value=value or 0.0, remove=value is None
            )
            delta.replay(record)
            made = delta.apply()
            if heard_of:
                watch.take(delta, made)
            return made

        def limit(user: str) -> float | None:
            found = quotas.limits(QuotaType.PRODUCED_BYTES).of_client(QuotaClient(user, "c"))
            return None if found is None else found.value

        image = after(USER, "a", 1.0)
        image = after(USER, "b", 2.0)
        assert (limit("a"), limit("b"), quotas.times) == (1.0, 2.0, 0)
        assert node.quotas is quotas
        image = after(USER, "a", 3.0)
        image = after(USER, "b", None)
        assert (limit("a"), limit("b"), quotas.times) == (3.0, None, 0)
        image = after("ip", "::1", 1.0)
        again = MetadataImage(quotas={key: dict(each) for key, each in image.quotas.items()})
        watch.prepare(again)
        watch.take(MetadataDelta.between(image, again), again)  # a snapshot in which all quotas are the same
        image = again
        image = after(USER, "b", 5.0)
        image = after(USER, "b", None)
        assert (limit("a"), limit("b"), quotas.times) == (3.0, None, 0)
        image = after(USER, "c", 4.0, heard_of=False)
        image = after(USER, "a", None)
        assert (limit("a"), limit("c"), quotas.times) == (None, 4.0, 1)
        image = after("ip", "::1", None)
        image = after(USER, "c", None)
        assert node.quotas is None

    asyncio.run(run())


def test_what_hosts_may_is_changed_host_by_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside fifty thousand addresses with quotas, one change took the loop 60 ms, a name's twice that."""
    names = {"one": {"10.0.0.1", "::1"}, "two": {"10.0.0.1"}, "none": set[str]()}
    looked_up: list[str] = []

    async def addresses_of(_: Any, host: str) -> frozenset[str]:
        looked_up.append(host)
        await asyncio.sleep(0)
        return frozenset(names[host])

    monkeypatch.setattr(throttling, "addresses_of", addresses_of)

    async def run() -> None:
        quotas = TakesAll(QuotaWindow(), QuotaWindow())
        watch, image = QuotaUpdates(node_context(asyncio.get_running_loop()), quotas), EMPTY_IMAGE

        async def limits(**changed: float | None) -> list[float | None]:
            """Of two addresses, after a change of hosts' quotas all of which were looked up."""
            nonlocal image
            delta = MetadataDelta(image)
            for host, rate in changed.items():
                values = {} if rate is None else {QuotaType.CONNECTIONS: rate}
                delta.changed_quotas[(("ip", host.replace("_", ":")),)] = values
            image = delta.apply()
            watch.take(delta, image)
            for _ in range(20):
                await asyncio.sleep(0)
            of_address = quotas.limits(QuotaType.CONNECTIONS).of_address
            return [of_address("10.0.0.1"), of_address("::1")]

        assert await limits(__1=1.0) == [None, 1.0]
        assert await limits(one=2.0, none=9.0) == [2.0, 1.0]  # its own holds before a name's
        assert await limits(two=3.0, one=2.0) == [3.0, 1.0]
        assert await limits(one=4.0) == [3.0, 1.0]
        assert looked_up == ["one", "none", "two", "one", "one"]  # what has not changed is not looked up
        names["one"] = {"::1"}
        assert await limits(one=5.0) == [3.0, 1.0]
        assert await limits(__1=None) == [3.0, 5.0]
        assert await limits(one=None) == [3.0, None]
        assert await limits(two=None) == [None, None]
        assert await limits(one=6.0, two=None, none=None) == [None, 6.0]
        assert await limits(one=None) == [None, None]
        assert quotas.times == 0
        image = MetadataImage(
            quotas={(("ip", host),): {QuotaType.CONNECTIONS: 7.0} for host in ("one", "::1")}
        )
        watch.take(MetadataDelta.between(EMPTY_IMAGE, image), image)
        assert await limits(__1=8.0) == [None, 8.0]
        assert quotas.times == 1

    asyncio.run(run())


@pytest.mark.parametrize("order", list(permutations(["10.0.0.1", "one", "two"])))
def test_a_restart_does_not_change_whose_quota_holds(
    order: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def addresses_of(_: Any, host: str) -> frozenset[str]:
        return frozenset({"10.0.0.1"})

    monkeypatch.setattr(throttling, "addresses_of", addresses_of)
    rates = {"10.0.0.1": 1.0, "one": 2.0, "two": 3.0}

    async def run() -> None:
        async def limit_after(*images: MetadataImage) -> float | None:
            quotas, before = ClientQuotas(QuotaWindow(), QuotaWindow()), EMPTY_IMAGE
            watch = QuotaUpdates(node_context(asyncio.get_running_loop()), quotas)
            for image in images:
                watch.take(MetadataDelta.between(before, image), before := image)
                for _ in range(20):
                    await asyncio.sleep(0)
            return quotas.limits(QuotaType.CONNECTIONS).of_address("10.0.0.1")

        def with_quotas(hosts: tuple[str, ...]) -> MetadataImage:
            return MetadataImage(
                quotas={(("ip", host),): {QuotaType.CONNECTIONS: rates[host]} for host in hosts}
            )

        images = [with_quotas(order[:count]) for count in (1, 2, 3)]
        for last in (2, 3):
            assert await limit_after(*images[:last]) == await limit_after(images[last - 1])
        assert await limit_after(*images) == rates["10.0.0.1"]

    asyncio.run(run())


class Looked(dict[QuotaEntityKey, Mapping[str, float]]):
    """Counts how often somebody goes through all of them."""

    times = 0

    def items(self) -> Any:
        self.times += 1
        return super().items()

    def __iter__(self) -> Iterator[QuotaEntityKey]:
        self.times += 1
        return super().__iter__()


def test_the_quotas_of_a_snapshot_are_looked_at_before_it_is_taken() -> None:
    async def run() -> None:
        node = node_context(asyncio.get_running_loop())
        quotas = ClientQuotas(QuotaWindow(), QuotaWindow())
        watch = QuotaUpdates(node, quotas)

        def limit(user: str) -> float | None:
            found = quotas.limits(QuotaType.PRODUCED_BYTES).of_client(QuotaClient(user, "c"))
            return None if found is None else found.value

        limited = Looked({((USER, user),): {QuotaType.PRODUCED_BYTES: 1.0} for user in "ab"})
        image = MetadataImage(quotas=limited)
        delta = MetadataDelta.between(EMPTY_IMAGE, image)
        watch.prepare(image)
        assert (limited.times > 0, node.quotas) == (True, None)
        limited.times, delta.changed_quotas = 0, Looked(delta.changed_quotas)
        watch.take(delta, image)
        assert (limited.times, delta.changed_quotas.times, node.quotas) == (0, 0, quotas)
        assert (limit("a"), limit("b"), limit("c")) == (1.0, 1.0, None)
        nothing = MetadataImage()
        watch.prepare(nothing)
        watch.take(MetadataDelta.between(image, nothing), nothing)
        assert (limit("a"), node.quotas) == (None, None)

    asyncio.run(run())


@pytest.mark.parametrize("rate", [1.0, 1e-4, 5e-324])
def test_a_quota_of_next_to_nothing_makes_no_answer_that_cannot_be_sent(rate: float) -> None:
    """It is how an operator shuts a client out. What was produced is in the log, so there must be an answer:
    the producer would send it again."""
    muted: list[float] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        node = node_context(loop)
        quotas = ClientQuotas(QuotaWindow(), QuotaWindow())
        quotas.take({((USER, "a"),): {each.value: rate for each in QuotaType}})
        node.quotas = quotas
        connection: Any = SimpleNamespace(mute=muted.append)
        ctx = RequestContext(
            ApiKey.CREATE_TOPICS, 6, 1, "c", Role.BROKER, connection, "User:a", (),
            cost=RequestCost(Stopwatch(), 100_000_000),
        )  # fmt: skip
        pauses_ms = [charge_produce(node, ctx), charge_fetch(node, ctx, 100_000_000)]
        mutations = ControllerMutationQuota(node, ctx)
        mutations.count(10_000)
        with pytest.raises(BrokerError, match="THROTTLING_QUOTA_EXCEEDED"):
            mutations.count(1)
        pauses_ms.append(mutations.throttle_time_ms)
        response = throttled(node, ctx, {"topics": [], "throttle_time_ms": pauses_ms[-1]})
        for pause_ms in (*pauses_ms, response["throttle_time_ms"]):
            encode_response(ApiKey.CREATE_TOPICS, 6, {"topics": [], "throttle_time_ms": pause_ms})
            assert pause_ms > 0

    asyncio.run(run())
    assert muted
    assert max(muted) <= 2**31 / 1000
