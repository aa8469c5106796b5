"""Expected errors of a command: one sentence on standard error and a non-zero exit, no traceback.

    0     done; also where the reader of the output has seen enough (`| head -1`)
    1     it cannot be done: nobody answers, it is refused, there is no such thing
    2     the command line is wrong
    10 …  this machine does not (ExitCode)
    130   Ctrl-C

A bug still shows its traceback: only errors that a user can cause are caught here.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NoReturn

from kraft.cli.interruption import CtrlC, none_is_lost
from kraft.cli.printable import printable_lines
from kraft.monitoring import standard_error
from kraft.wire.malformed import MalformedMessage, UnencodableMessage
from metadata_quorum.foundation.errors import BrokerError, ExitCode, FatalError

INTERRUPTED = 130
"""What shells report for a command that Ctrl-C ended."""

_INTERRUPTED_IN_C: Final = "returned NULL without setting an exception"
"""What Python makes of a Ctrl-C that comes while librdkafka calls back: the KeyboardInterrupt is lost."""

_SENTENCES = {
    "UNKNOWN_TOPIC_OR_PART": "there is no such topic or partition",
    "TOPIC_ALREADY_EXISTS": "the topic exists already",
    "_TRANSPORT": "no broker answers",
    "_ALL_BROKERS_DOWN": "no broker answers",
    "_RESOLVE": "the host name is not known",
    "_TIMED_OUT": "no answer in time",
    "_MSG_TIMED_OUT": "the message was not acknowledged in time",
    "_AUTHENTICATION": "the broker refused the credentials",
}
"""librdkafka's error names that deserve better words than its own."""


class CliError(Exception):
    """What keeps a command from doing its work, as a sentence."""


class UsageError(CliError):
    """The command line itself is wrong, whatever the cluster is like: no broker was asked."""


class ReaderHasEnded(Exception):
    """The reader of our output has closed it, as `head` does when it has its lines."""


def sentence_of(error: object, context: str = "") -> str:
    """A KafkaError (or an exception around one) in plain words."""
    inner = error.args[0] if isinstance(error, Exception) and error.args else error
    name = inner.name() if hasattr(inner, "name") and callable(inner.name) else ""
    own = inner.str() if hasattr(inner, "str") and callable(inner.str) else str(inner)
    words = _SENTENCES.get(name, own)
    shown = f" ({name})" if name and not name.startswith("_") else ""
    return f"{context}: {words}{shown}" if context else f"{words}{shown}"


_said: Final[set[str]] = set()
_one_at_a_time: Final = threading.Lock()


def say(sentence: str) -> None:
    """Print an error to standard error, only once: what has kept a command waiting may be what ends it."""
    with _one_at_a_time:  # a notice comes from a thread of its own; whoever ends waits for it
        if sentence not in _said:
            _said.add(sentence)
            tell(f"kraft: {sentence}")


def tell(*lines: str) -> None:
    """Lines on standard error, for whoever still reads it: Ctrl-C ends the other programs of a pipe
    (`kraft up 2>&1 | tee log`), too, and what is to be put in order then must not end by that."""
    standard_error.tell(*map(printable_lines, lines))


@contextmanager
def plain_errors() -> Iterator[None]:
    """Around the whole command line."""
    logging.lastResort = _SaysOnce(logging.WARNING)
    _said.clear()
    interruption = CtrlC()
    try:
        signal.signal(signal.SIGINT, interruption.on_signal)
        _require_text(sys.argv)
        with none_is_lost():
            try:
                yield
            finally:
                sys.stdout.flush()  # a full disk is seen here; at the very end it would be a traceback
    except UsageError as mistake:
        _end(str(mistake), ExitCode.USAGE)
    except CliError as trouble:
        _end(str(trouble), 1)
    except FatalError as error:
        _end(error.reason, error.exit_code)
    except BrokerError as error:
        _end(str(error), 1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (ReaderHasEnded, BrokenPipeError):
        # Not an error, and the interpreter must not try to flush at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        _end(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error), 1)
    except MalformedMessage as error:
        _end(f"a broker answers what we do not understand: {error}", 1)
    except UnencodableMessage as error:  # of a name that is too long, or a number too large
        _end(f"Kafka's protocol cannot say this: {error.__cause__ or error}", 1)
    except SystemError as error:
        if not (interruption.came and _INTERRUPTED_IN_C in str(error)):
            raise
        sys.exit(INTERRUPTED)
    except Exception as error:
        # Asked by name: importing librdkafka just to name its exception would slow every command.
        if type(error).__name__ != "KafkaException":
            raise
        _end(sentence_of(error), ExitCode.USAGE if _is_wrong_setting(error) else 1)


class _SaysOnce(logging.Handler):
    """Warnings, in a command where no logging is set up."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "kraft.net.connection_security":  # that a login was refused is raised, too
            say(record.getMessage())


def _require_text(arguments: list[str]) -> None:
    """Raises UsageError for bytes that are no UTF-8: no name of Kafka's can hold them."""
    for each in arguments:
        if not each.isprintable() and any("\udc80" <= letter <= "\udcff" for letter in each):
            raise UsageError(f"{os.fsencode(each)!r}: not text in this terminal's encoding")


def _is_wrong_setting(error: Exception) -> bool:
    """A setting that librdkafka does not know, or a value that it does not take."""
    inner = error.args[0] if error.args else None
    return inner is not None and hasattr(inner, "name") and inner.name() == "_INVALID_ARG"


def _end(sentence: str, code: int) -> NoReturn:
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    say(sentence)
    sys.exit(int(code))
