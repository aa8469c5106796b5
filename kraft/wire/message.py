"""A decoded message, as the handlers see it.

    bytes --decoding.py--> Message --> handler

One class per struct of Kafka's schemas, whatever the version: a `Message` answers for every field that any
version has, with Kafka's default where the version at hand lacks it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, TypeVar

from kraft.wire.schemas import FieldPlan, MessageId, StructPlan, default_in_any_version


class Message:
    """A decoded message or struct: attributes named as in Kafka's schema, in snake case."""

    _message: ClassVar[MessageId]
    _path: ClassVar[tuple[str, ...]]

    def __getattr__(self, name: str) -> Any:
        # Reached once only for a field that the version at hand lacks: then the class has its default.
        if name.startswith("__"):
            raise AttributeError(name)
        value = default_in_any_version(self._message, self._path, name)
        if isinstance(value, StructPlan):
            return default_message(value)
        setattr(type(self), name, value)
        return value

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Message({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


M = TypeVar("M", bound=Message)


def replaced(message: M, **fields: Any) -> M:
    """The same message with other values in these fields."""
    copied = type(message)()
    vars(copied).update(vars(message))
    vars(copied).update(fields)
    return copied


@cache
def message_class(message: MessageId, path: tuple[str, ...]) -> type[Message]:
    """The class of a struct, found by where it lies inside its message."""
    return type("Message", (Message,), {"_message": message, "_path": path})


def default_message(plan: StructPlan) -> Message:
    """A struct that was not sent."""
    result = message_class(plan.message, plan.path)()
    for field in plan.fields:
        vars(result)[field.name] = default_value(field)
    return result


def default_value(field: FieldPlan) -> Any:
    """The value of a field that was not sent."""
    value = field.default
    if isinstance(value, StructPlan):
        return default_message(value)
    return [] if value == () else value
