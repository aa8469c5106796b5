"""ApiVersions: what a client says of itself, and what is kept of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft.api.request_context import Role
from kraft.api.versions import handle
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.metadata.image import EMPTY_IMAGE


def asked(name: str, version: str = "1") -> Any:
    """The state of the connection afterwards."""
    state = SimpleNamespace(client_software_name="", client_software_version="")
    ctx: Any = SimpleNamespace(
        version=3, role=Role.BROKER, advertised=(), connection=SimpleNamespace(state=state)
    )
    node: Any = SimpleNamespace(image=EMPTY_IMAGE)
    request: Any = SimpleNamespace(client_software_name=name, client_software_version=version)
    assert handle(node, ctx, request)["error_code"] == 0  # type: ignore[index]
    return state


def test_of_what_a_client_calls_itself_little_is_kept() -> None:
    state = asked("librdkafka", "2.11.0")
    assert (state.client_software_name, state.client_software_version) == ("librdkafka", "2.11.0")
    state = asked("n" * 30_000, "1" * 30_000)
    assert len(state.client_software_name) == len(state.client_software_version) == 256


@pytest.mark.parametrize("name", ["", "-kafka", "kaf ka", "kafka\n"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(BrokerError) as caught:
        asked(name)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
