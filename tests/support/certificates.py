"""As much of a certificate as says whose it is, in DER."""

from __future__ import annotations

PRINTABLE, UTF8, IA5, BMP = 0x13, 0x0C, 0x16, 0x1E
COMMON_NAME, COUNTRY, ORGANIZATION = "2.5.4.3", "2.5.4.6", "2.5.4.10"
UID, EMAIL = "0.9.2342.19200300.100.1.1", "1.2.840.113549.1.9.1"

Attribute = tuple[str, int, bytes]
"""Object identifier, type of the value, value."""

_SEQUENCE, _SET, _OID, _INTEGER, _VERSION = 0x30, 0x31, 0x06, 0x02, 0xA0


def certificate(*subject: tuple[Attribute, ...]) -> bytes:
    """Of whom these parts name, the most general first."""
    parts = [
        _der(_SET, *(_der(_SEQUENCE, _oid(kind), _der(tag, value)) for kind, tag, value in part))
        for part in subject
    ]
    version, number = _der(_VERSION, _der(_INTEGER, b"\2")), _der(_INTEGER, b"\7")
    algorithm, validity = _der(_SEQUENCE, _oid("1.2.840.10045.4.3.2")), _der(_SEQUENCE)
    issuer = _der(_SEQUENCE, _der(_SET, _der(_SEQUENCE, _oid(COMMON_NAME), _der(UTF8, b"kraft"))))
    signed = _der(_SEQUENCE, version, number, algorithm, issuer, validity, _der(_SEQUENCE, *parts))
    return _der(_SEQUENCE, signed, algorithm, _der(0x03, b"\0" + bytes(200)))


def _der(tag: int, *contents: bytes) -> bytes:
    whole = b"".join(contents)
    length = len(whole)
    if length < 0x80:
        return bytes([tag, length]) + whole
    size = length.to_bytes(4).lstrip(b"\0")
    return bytes([tag, 0x80 | len(size)]) + size + whole


def _oid(dotted: str) -> bytes:
    first, second, *others = map(int, dotted.split("."))
    return _der(_OID, b"".join(map(_seven_bits_a_byte, (40 * first + second, *others))))


def _seven_bits_a_byte(number: int) -> bytes:
    last, number = number & 0x7F, number >> 7
    before = []
    while number:
        before.append(0x80 | number & 0x7F)
        number >>= 7
    return bytes([*reversed(before), last])
