"""confluent-kafka as the commands use it: quiet, impatient, and in plain words.

librdkafka is imported in the functions, so that `kraft --help` does not wait for it.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from kraft.cli import notice
from kraft.cli.bootstrap import addresses, checked, first_broker, no_broker
from kraft.cli.command_config import librdkafka_settings
from kraft.cli.errors import CliError, UsageError, sentence_of
from kraft.cli.silence import silence_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

PATIENCE_S = 10.0
AT_ONCE_S = 0.4
"""A broker that is well has answered by then."""
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "KRAFT_BOOTSTRAP_SERVERS"


def _bootstrap_option(callback: Callable[..., str]) -> Any:
    return typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,...",
        envvar=BOOTSTRAP_VARIABLE,
        callback=callback,
        help="Brokers to ask first.",
    )


Bootstrap = Annotated[str, _bootstrap_option(notice.begin)]
ReadingBootstrap = Annotated[str, _bootstrap_option(notice.begin_reading)]
"""For commands that show what a broker knows."""
SurveyedBootstrap = Annotated[str, _bootstrap_option(checked)]
"""For commands that say themselves what is missing."""
Result = TypeVar("Result")
_NAMES: Final = frozenset(
    ("client.id", "group.id", "group.instance.id", "transactional.id", "sasl.username", "sasl.password")
)
"""Settings that mean what they are, to the last letter."""


def settings(bootstrap: str, **more: object) -> dict[str, Any]:
    """librdkafka's settings; underscores for dots."""
    base: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": "kraft-cli",
        "socket.timeout.ms": int(PATIENCE_S * 1000),
        "log_level": 0,  # errors are raised; its log lines would repeat them
        "error_cb": _ignore,
    }
    own = {name.replace("_", "."): value for name, value in more.items()}
    return _as_librdkafka_takes_them(base | librdkafka_settings() | own)


def _as_librdkafka_takes_them(values: dict[str, Any]) -> dict[str, Any]:
    """librdkafka drops the space at the beginning of a value: with " boards" it would read as group "boards",
    and a group's name of nothing else ends the process. Raises `UsageError`."""
    for name in _NAMES & values.keys():
        if values[name][:1].isspace():
            raise UsageError(f"{name}={values[name]!r}: librdkafka drops the space at its beginning")
    if values.get("group.id") == "":
        raise UsageError("group.id: a group has a name")
    return values


def _ignore(error: KafkaError) -> None:
    """Errors are seen where they end a command; a broker of several being away is none."""


def connect_admin(bootstrap: str) -> AdminClient:
    """An admin client of a cluster that answers. Raises CliError where no broker does."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    _check_reachable(bootstrap)
    heard: list[KafkaError] = []
    admin = AdminClient(settings(bootstrap) | {"error_cb": heard.append})
    try:
        admin.list_topics(timeout=AT_ONCE_S)
        return admin
    except KafkaException:
        first_broker(bootstrap)  # librdkafka would retry for long without saying why
    try:
        admin.list_topics(timeout=PATIENCE_S / 2)
        return admin
    except KafkaException as error:
        admin.poll(0)
        why = [each for each in heard if each.name() in ("_AUTHENTICATION", "_SSL")]
        raise CliError(sentence_of(why[0] if why else error, bootstrap)) from None


def _check_reachable(bootstrap: str) -> None:
    """Raises CliError at once where every address refuses, or is none: librdkafka would retry."""
    silences = []
    for address in addresses(bootstrap):
        try:
            socket.create_connection(address, timeout=AT_ONCE_S).close()
            return
        except (ConnectionRefusedError, socket.gaierror) as error:
            silences.append(silence_of(error))
        except OSError:
            return  # a slow broker may still answer
    raise no_broker(bootstrap, silences)


def require_partitions(topic: str, count: int, partitions: list[int]) -> None:
    """Raises CliError where one of them is beyond the topic's: librdkafka would wait for it to be created."""
    for partition in partitions:
        if not 0 <= partition < count:
            raise CliError(f"{topic}: there is no partition {partition}; it has {count}")


def wait(future: Future[Result], context: str) -> Result:
    """The result of an admin call. Raises CliError with one sentence."""
    from confluent_kafka import KafkaException

    try:
        return future.result()
    except KafkaException as error:
        raise CliError(sentence_of(error, context)) from None


def key_values(pairs: list[str], what: str) -> dict[str, str]:
    """`["a=1", "b=2"]` as a mapping. Raises CliError."""
    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise UsageError(f"{pair}: {what} is given as KEY=VALUE")
        values[name] = value
    return values


def extra_settings(pairs: list[str]) -> dict[str, Any]:
    """librdkafka's own settings from `-X key=value`."""
    return _as_librdkafka_takes_them(dict(key_values(pairs, "a client setting")))
