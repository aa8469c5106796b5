"""`kraft metadata dump` of a node whose answers are not what they should be: a sentence, no traceback."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft.cli.errors import CliError
from kraft.cli.metadata_lines import from_node
from kraft.peers import blocking_client
from kraft.wire.bridge import MalformedMessage
from metadata_quorum.foundation.errors import BrokerError

NO_ERROR = {"error_code": 0, "error_message": None}


def test_an_answer_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: Any) -> Any:
        raise MalformedMessage("topics is null")

    monkeypatch.setattr(blocking_client, "ask", ask)
    with pytest.raises(CliError, match="here:9 answers what we do not understand"):
        list(from_node("here", 9))


def test_a_controller_of_which_we_are_not_told_where_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = SimpleNamespace(leader_id=1, leader_epoch=4, **NO_ERROR)
    quorum = SimpleNamespace(topics=[SimpleNamespace(partitions=[partition])], nodes=[], **NO_ERROR)
    monkeypatch.setattr(blocking_client, "ask", lambda *_: quorum)
    with pytest.raises(BrokerError, match="where the active controller listens"):
        list(from_node("here", 9))
