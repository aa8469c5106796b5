"""The four codecs of a record batch, framed as Kafka's own clients frame them.

A batch's records are compressed as one block. Decompression is bounded: a batch of a few
kilobytes may hold gigabytes, so output grows only up to a limit given by the caller, and memory
is taken for what comes out, not for what is claimed.

Lowest floor: used by metadata_quorum/foundation/batch.py, and through it wherever a batch must be opened.
Brokers do so off the hot path only (recompression, timestamps, coordinators, tools).
"""

from __future__ import annotations

import mmap
import struct
from enum import IntEnum
from typing import Final, Protocol

import cramjam

from metadata_quorum.foundation.primitives import Buffer

MAX_DECOMPRESSED_BYTES: Final = 128 * 1024 * 1024

_GUESSED_RATIO: Final = 8
_LARGEST_GUESS_BYTES: Final = 64 * 1024
_OUTPUT_FULL: Final = "failed to write whole buffer"  # cramjam's message when the output does not fit


class CompressionType(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TooLargeError(ValueError):
    """The output is larger than the caller allows."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"compressed records hold more than {max_bytes} bytes")


# xerial's stream of snappy blocks, which Kafka's Java clients write:
#   magic (8) | version int32 | lowest compatible version int32 | { block size int32 | raw snappy }*
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024

# An lz4 frame: magic | FLG 0x60 = version 1, independent blocks, no checksums | BD 0x40 = 64 KiB
# blocks | header checksum (second byte of xxh32 of FLG and BD) | { size uint32 LE, top bit set
# where the block is stored as it is | block }* | end mark, four zero bytes.
# Framed by hand because Kafka's Java reader refuses dependent blocks, the only ones cramjam frames.
_LZ4_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_FLAGS: Final = 4  # position of FLG
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_STORED: Final = 0x8000_0000
_LZ4_END: Final = b"\x00\x00\x00\x00"

_GZIP_LEVEL: Final = 6
_ZSTD_LEVEL: Final = 3

_INT32_BE: Final = struct.Struct(">i")
_UINT32_LE: Final = struct.Struct("<I")


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` in the codec's framing; `level` counts for gzip and zstd.

    Raises ValueError for a codec that Kafka does not know.
    """
    match codec:
        case CompressionType.NONE:
            return bytes(data)
        case CompressionType.GZIP:
            return bytes(cramjam.gzip.compress(data, level=_GZIP_LEVEL if level is None else level))
        case CompressionType.SNAPPY:
            return _xerial_compress(data)
        case CompressionType.LZ4:
            return _lz4_compress(data)
        case CompressionType.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))
    raise ValueError(f"unknown compression codec {codec}")


def decompress(codec: int, data: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes | memoryview:
    """The records that were compressed. Raises ValueError on damage, TooLargeError beyond `max_bytes`.

    Asks for no `MayBlock`: it waits for nobody, and a small batch of a client is opened on the loop. How much
    is opened there is bounded by whoever calls (`max_bytes`; for Produce validation.py's `WorkBudget`).
    """
    try:
        match codec:
            case CompressionType.NONE:
                return memoryview(data)
            case CompressionType.GZIP:
                return _grow(cramjam.gzip.decompress_into, data, max_bytes)
            case CompressionType.SNAPPY:
                return _snappy_decompress(data, max_bytes)
            case CompressionType.LZ4:
                if len(data) > _LZ4_FLAGS and not data[_LZ4_FLAGS] & _LZ4_INDEPENDENT:
                    raise ValueError("lz4 blocks depend on each other, which Kafka cannot read")
                return _grow(cramjam.lz4.decompress_into, data, max_bytes)
            case CompressionType.ZSTD:
                return _grow(cramjam.zstd.decompress_into, data, max_bytes)
    except (cramjam.DecompressionError, OSError) as e:
        raise ValueError(f"{CompressionType(codec).name.lower()} data is damaged: {e}") from e
    raise ValueError(f"unknown compression codec {codec}")


class _DecompressInto(Protocol):
    def __call__(self, input: Buffer, output: bytearray | mmap.mmap) -> int: ...


def _grow(decompress_into: _DecompressInto, data: Buffer, max_bytes: int) -> bytes | memoryview:
    """Frames need not give their size, and what they give may be wrong. What is larger than a guess gets a
    buffer of `max_bytes`, of which the system allocates only the pages that are written to."""
    guess = max(1024, len(data) * _GUESSED_RATIO)
    if guess <= min(_LARGEST_GUESS_BYTES, max_bytes):
        small = bytearray(guess)
        try:
            return memoryview(small)[: decompress_into(data, small)]
        except cramjam.DecompressionError as e:
            if _OUTPUT_FULL not in str(e):
                raise
    with mmap.mmap(-1, max(max_bytes, 1)) as room:
        try:
            return room[: decompress_into(data, room)]
        except cramjam.DecompressionError as e:
            if _OUTPUT_FULL in str(e):
                raise TooLargeError(max_bytes) from None
            raise


def _xerial_compress(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32_BE.pack(len(block)), block)
    return b"".join(parts)


def _snappy_decompress(data: Buffer, max_bytes: int) -> bytes:
    """Either xerial's stream or one raw block, which some clients send."""
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(view, 0, max_bytes)
    blocks: list[bytes] = []
    position = len(_XERIAL_HEADER)
    held = 0
    while position < len(view):
        if position + 4 > len(view):
            raise ValueError("snappy stream is cut inside a block size")
        (size,) = _INT32_BE.unpack_from(view, position)
        position += 4
        if size < 0 or position + size > len(view):
            raise ValueError(f"snappy block of {size} bytes reaches beyond the batch")
        block = _snappy_block(view[position : position + size], held, max_bytes)
        blocks.append(block)
        held += len(block)
        position += size
    return b"".join(blocks)


def _snappy_block(block: memoryview, held: int, max_bytes: int) -> bytes:
    if held + cramjam.snappy.decompress_raw_len(block) > max_bytes:
        raise TooLargeError(max_bytes)
    return bytes(cramjam.snappy.decompress_raw(block))


def _lz4_compress(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts += (_UINT32_LE.pack(len(block)), block)
        else:
            parts += (_UINT32_LE.pack(len(plain) | _LZ4_STORED), bytes(plain))
    parts.append(_LZ4_END)
    return b"".join(parts)
