"""Which quota holds for a client: Apache Kafka's order of precedence, as a table."""

from __future__ import annotations

import sys

import pytest

from data_plane.quotas.limits import LONGEST_NAME, QuotaClient, QuotaLimit, QuotaLimits, limits_of
from metadata_quorum.foundation.quota_types import QuotaEntityKey, QuotaType


def entity(user: str | None = "", client_id: str | None = "") -> QuotaEntityKey:
    """An empty name: that coordinate is not there; None: the default."""
    named = (("client-id", client_id), ("user", user))
    return tuple((kind, name) for kind, name in named if name != "")


# From the most specific to the least, with those who share what it allows.
PRECEDENCE = [
    (entity("u", "c"), ("u", "c")),
    (entity("u", None), ("u", "c")),
    (entity("u"), ("u", None)),
    (entity(None, "c"), ("u", "c")),
    (entity(None, None), ("u", "c")),
    (entity(None), ("u", None)),
    (entity(client_id="c"), (None, "c")),
    (entity(client_id=None), (None, "c")),
]


@pytest.mark.row("R12")
@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_the_most_specific_holds(first: int) -> None:
    limits = QuotaLimits(
        {known: float(place) for place, (known, _) in enumerate(PRECEDENCE) if place >= first}
    )
    assert limits.of_client(QuotaClient("u", "c")) == QuotaLimit(PRECEDENCE[first][1], first)


@pytest.mark.parametrize(
    ("client", "value"),
    [
        (QuotaClient("u", "c"), 1.0),
        (QuotaClient("u", "other"), 3.0),
        (QuotaClient("other", "c"), 2.0),
        (QuotaClient("other", "other"), None),
    ],
)
def test_names_that_are_not_ours_do_not_hold(client: QuotaClient, value: float | None) -> None:
    limits = QuotaLimits({entity("u", "c"): 1.0, entity(client_id="c"): 2.0, entity("u"): 3.0})
    found = limits.of_client(client)
    assert (found and found.value) == value


def test_each_kind_is_looked_up_for_itself() -> None:
    """A more specific entity without a value of that kind is not in the way."""
    limits = limits_of(
        {entity("u", "c"): {"producer_byte_rate": 1.0}, entity(None): {"consumer_byte_rate": 2.0}}
    )
    assert limits[QuotaType.PRODUCED_BYTES].of_client(QuotaClient("u", "c")) == QuotaLimit(("u", "c"), 1.0)
    assert limits[QuotaType.FETCHED_BYTES].of_client(QuotaClient("u", "c")) == QuotaLimit(("u", None), 2.0)
    assert limits[QuotaType.REQUEST_TIME].of_client(QuotaClient("u", "c")) is None


def test_addresses() -> None:
    limits = QuotaLimits({(("ip", "10.0.0.1"),): 1.0, (("ip", None),): 2.0})
    assert (limits.of_address("10.0.0.1"), limits.of_address("10.0.0.2")) == (1.0, 2.0)
    assert QuotaLimits({}).of_address("10.0.0.1") is None


@pytest.mark.parametrize(("length", "remembered"), [(LONGEST_NAME, True), (LONGEST_NAME + 1, False)])
def test_long_client_ids_are_not_remembered(length: int, remembered: bool) -> None:
    """Four thousand of 32 KB each were 135 MB, and 537 MB of rarer characters, for ever."""
    limits, client_id = QuotaLimits({entity(client_id=None): 1.0}), "".join(["c"] * length)
    before = sys.getrefcount(client_id)
    assert limits.of_client(QuotaClient("u", client_id)) is not None
    assert (sys.getrefcount(client_id) > before) is remembered
