"""Expected errors of a command: one sentence on standard error and a non-zero exit, no traceback.

    1     the cluster does not let it be done: nobody answers, it is refused, there is no such thing
    2     the command line is wrong
    10 …  this machine does not (ExitCode)
    130   Ctrl-C

A bug still shows its traceback: only errors that a user can cause are caught here.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from metadata_quorum.foundation.errors import BrokerError, ExitCode, FatalError

INTERRUPTED = 130
"""What shells report for a command that Ctrl-C ended."""

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


def sentence_of(error: object, context: str = "") -> str:
    """A KafkaError (or an exception around one) in plain words."""
    inner = error.args[0] if isinstance(error, Exception) and error.args else error
    name = inner.name() if hasattr(inner, "name") and callable(inner.name) else ""
    own = inner.str() if hasattr(inner, "str") and callable(inner.str) else str(inner)
    words = _SENTENCES.get(name, own)
    shown = f" ({name})" if name and not name.startswith("_") else ""
    return f"{context}: {words}{shown}" if context else f"{words}{shown}"


@contextmanager
def plain_errors() -> Iterator[None]:
    """Around the whole command line."""
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
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
    except BrokenPipeError:
        # The reader of our output has ended (`kraft consume | head`): not an error, and the
        # interpreter must not try to flush at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        _end(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error), 1)
    except Exception as error:
        # Asked by name: importing librdkafka just to name its exception would slow every command.
        if type(error).__name__ != "KafkaException":
            raise
        _end(sentence_of(error), 1)


def _end(sentence: str, code: int) -> NoReturn:
    sys.stdout.flush()
    print(f"kraft: {sentence}", file=sys.stderr)
    sys.exit(int(code))
