"""Client metrics subscriptions: which clients one is for."""

import pytest

from metadata_quorum.decisions.client_metrics import check_client_metrics, matches
from metadata_quorum.foundation.errors import BrokerError
from tests.support.cpu_time import cpu_s

CLIENT = {
    "client_instance_id": "b69cc35a-7a54-4790-aa69-cc2bd4ee4538",
    "client_id": "billing-1",
    "client_software_name": "librdkafka",
    "client_software_version": "2.12.0",
    "client_source_address": "127.0.0.1",
    "client_source_port": "9092",
}


@pytest.mark.parametrize(
    ("conditions", "fits"),
    [
        ("", True),
        ("client_id=billing-.*", True),
        ("client_id=billing", False),
        ("client_id=billing-.*, client_software_name=librdkafka", True),
        ("client_id=billing-.*, client_software_name=java", False),
        (r"client_source_address=127\.0\.0\.\d+", True),
    ],
)
def test_every_condition_has_to_fit(conditions: str, fits: bool) -> None:
    check_client_metrics({"match": conditions})
    assert matches(conditions, CLIENT) is fits


def test_a_pattern_of_an_administrator_takes_linear_time_on_names_that_clients_choose() -> None:
    conditions = "client_id=(a+)+b"
    check_client_metrics({"match": conditions})

    def asked() -> None:
        assert not matches(conditions, {**CLIENT, "client_id": "a" * 4_000})

    assert cpu_s(asked) < 1  # a backtracking matcher does not end at all


@pytest.mark.parametrize("pattern", ["(", "(a{1,1000}){1,1000}", "a{1}" * 51])
def test_what_is_no_pattern_or_too_large_a_one_is_refused(pattern: str) -> None:
    with pytest.raises(BrokerError, match="Illegal client matching pattern"):
        check_client_metrics({"match": f"client_id={pattern}"})
