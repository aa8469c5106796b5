"""What a certificate says: until when it is good, and its subject as RFC 2253 writes it, and as Java does.
Kafka's principals are made of that.

    CN=Anna,OU=Maps,O=Kraft\\, Inc.,C=NO            the most particular part first
    1.2.840.113549.1.9.1=#1609616e6e6140782e6e6f    an attribute without a name there: its value's DER

Python tells OpenSSL's names and the text of values, but not what type a value has. So the certificate's own
bytes are read; OpenSSL has checked them before.
"""

from __future__ import annotations

from calendar import timegm
from collections.abc import Iterator
from time import strptime
from typing import Final, NamedTuple

_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes that RFC 2253 gives names to."""

_ENCODINGS: Final = {
    0x0C: "utf-8",
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # T61String, as Java takes it
    0x16: "ascii",  # IA5String
    0x1B: "ascii",  # GeneralString
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}
"""By their tags, the types of values that are text."""

_ESCAPED: Final = frozenset(',=+<>#;"\\')
_SPACE: Final = " \r"

_VERSION_TAG: Final = 0xA0
_VALIDITY: Final = 3
"""Behind serial number, algorithm and issuer."""
_SUBJECT: Final = 4
_SHORT_TIME: Final = 0x17
"""Years of two digits, which stand for 1950 to 2049."""


class _Element(NamedTuple):
    """One value of DER."""

    tag: int
    contents: bytes
    whole: bytes


def distinguished_name(certificate: bytes) -> str:
    """The subject of a certificate in DER. Raises `ValueError` for what is none."""
    parts = [_part(part.contents) for part in _elements(_fields(certificate)[_SUBJECT].contents)]
    return ",".join(reversed(parts))


def good_until(certificate: bytes) -> int:
    """The last second at which a certificate in DER is good, since 1970. Raises `ValueError`."""
    _, last = _elements(_fields(certificate)[_VALIDITY].contents)
    text = last.contents.decode("ascii")
    if last.tag == _SHORT_TIME:
        text = ("19" if text >= "50" else "20") + text
    return timegm(strptime(text, "%Y%m%d%H%M%SZ"))


def _fields(certificate: bytes) -> list[_Element]:
    (outer,) = _elements(certificate)
    signed, *_ = _elements(outer.contents)
    fields = [each for each in _elements(signed.contents) if each.tag != _VERSION_TAG]
    if len(fields) <= _SUBJECT:
        raise ValueError("a certificate without a subject")
    return fields


def _elements(der: bytes) -> Iterator[_Element]:
    at = 0
    while at < len(der):
        start = at + 2
        length = int.from_bytes(der[at + 1 : start])
        if length & 0x80:
            more = length & 0x7F
            length = int.from_bytes(der[start : start + more])
            start += more
        end = start + length
        if end > len(der):
            raise ValueError("DER that ends too early")
        yield _Element(der[at], der[start:end], der[at:end])
        at = end


def _part(contents: bytes) -> str:
    return "+".join(_attribute(*_elements(each.contents)) for each in _elements(contents))


def _attribute(kind: _Element, value: _Element) -> str:
    number = _dotted(kind.contents)
    name, encoding = _NAMES.get(number), _ENCODINGS.get(value.tag)
    if name is not None and encoding is not None:
        try:
            return f"{name}={_escaped(value.contents.decode(encoding))}"
        except UnicodeDecodeError:
            pass  # with replacements, two names could become one
    return f"{name or number}=#{value.whole.hex()}"


def _dotted(contents: bytes) -> str:
    """An object identifier in digits: seven bits a byte, the first two numbers in one."""
    numbers: list[int] = []
    number = 0
    for byte in contents:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    both, *others = numbers
    first = min(both // 40, 2)
    return ".".join(map(str, (first, both - 40 * first, *others)))


def _escaped(value: str) -> str:
    """With a backslash before what has a meaning, and before each space at either end."""
    first, end = len(value) - len(value.lstrip(_SPACE)), len(value.rstrip(_SPACE))
    escaped = []
    for at, letter in enumerate(value):
        if letter in _ESCAPED or not first <= at < end:
            escaped.append("\\")
        escaped.append("\\00" if letter == "\0" else letter)
    return "".join(escaped)
