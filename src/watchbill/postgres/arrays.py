"""Packs arrays in PostgreSQL's binary format.

psycopg adapts a list element by element, about a microsecond each, and a batch of a thousand jobs has several thousand
elements. These functions need a tenth of that. Each returns a value that any psycopg connection sends unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct, pack
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

_HEADER = Struct(">iiiii")
_INT8 = Struct(">iq")
_INT2 = Struct(">ih")
_FLOAT8 = Struct(">id")
_INTERVAL = Struct(">iqii")
_JSONB = Struct(">ib")
_NULL = b"\xff\xff\xff\xff"
_SIXTEEN = b"\0\0\0\x10"


class _Packed:
    """Bytes that are sent to the server unchanged. It has them as an attribute and is not a subclass of bytes, because
    they may be 100 MB, and a subclass would copy them twice."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class _PackedDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> Buffer:
        data: bytes = obj.data
        return data


def _make_array_type(name: str, oid: int) -> type[_Packed]:
    packed: type[_Packed] = type(name, (_Packed,), {"__slots__": ()})
    psycopg.adapters.register_dumper(packed, type(f"{name}Dumper", (_PackedDumper,), {"oid": oid}))
    return packed


_Uuids = _make_array_type("_Uuids", 2951)
_Int8s = _make_array_type("_Int8s", 1016)
_Int2s = _make_array_type("_Int2s", 1005)
_Float8s = _make_array_type("_Float8s", 1022)
_Jsonbs = _make_array_type("_Jsonbs", 3807)
_Texts = _make_array_type("_Texts", 1009)
_Intervals = _make_array_type("_Intervals", 1187)
_Times = _make_array_type("_Times", 1185)


def uuids(values: Sequence[bytes]) -> _Packed:
    body = _SIXTEEN + _SIXTEEN.join(values) if values else b""
    return _Uuids(_pack_header(2950, len(values)) + body)


def int8s(values: Sequence[int]) -> _Packed:
    return _Int8s(_pack_header(20, len(values)) + b"".join([_INT8.pack(8, v) for v in values]))


def nullable_int8s(values: Sequence[int | None]) -> _Packed:
    return _Int8s(_pack_header(20, len(values)) + _join_int8s(values))


def int2s(values: Sequence[int]) -> _Packed:
    return _Int2s(_pack_header(21, len(values)) + b"".join([_INT2.pack(2, v) for v in values]))


def float8s(values: Sequence[float | None]) -> _Packed:
    return _Float8s(
        _pack_header(701, len(values)) + b"".join([_NULL if v is None else _FLOAT8.pack(8, v) for v in values])
    )


def texts(values: Iterable[str | None]) -> _Packed:
    encoded = [None if v is None else v.encode() for v in values]
    body = b"".join([_NULL if v is None else pack(">i", len(v)) + v for v in encoded])
    return _Texts(_pack_header(25, len(encoded)) + body)


def jsonbs(values: Sequence[bytes | None]) -> _Packed:
    parts = [_pack_header(3802, len(values))]
    for v in values:
        if v is None:
            parts.append(_NULL)
        else:
            parts += (_JSONB.pack(len(v) + 1, 1), v)
    return _Jsonbs(b"".join(parts))


def intervals(values: Sequence[float | None]) -> _Packed:
    """Packs seconds as intervals. They have microseconds only, no days, because a day may have 23 or 25 hours."""
    body = b"".join([_NULL if v is None else _INTERVAL.pack(16, round(v * 1e6), 0, 0) for v in values])
    return _Intervals(_pack_header(1186, len(values)) + body)


def times(values: Sequence[int | None]) -> _Packed:
    """Packs times that are given as microseconds since 2000, which is how `raw_cursor` returns them."""
    return _Times(_pack_header(1184, len(values)) + _join_int8s(values))


def _join_int8s(values: Sequence[int | None]) -> bytes:
    return b"".join([_NULL if v is None else _INT8.pack(8, v) for v in values])


def _pack_header(oid: int, length: int) -> bytes:
    return _HEADER.pack(1, 1, oid, length, 1) if length else pack(">iii", 0, 0, oid)
