"""What a handler says of its progress, as JSON: whatever it is, it can be stored, and stops nobody."""

from __future__ import annotations

import orjson


def as_json(progress: object) -> bytes:
    try:
        return orjson.dumps(progress, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # not JSON after all
        return orjson.dumps(_shown(progress))


def _shown(progress: object) -> str:
    try:
        return repr(progress).encode("ascii", "replace").decode()
    except Exception as error:  # noqa: BLE001  (too deep, changed meanwhile by its thread, or a __repr__ that fails)
        return f"a {type(progress).__name__} that cannot be shown: {type(error).__name__}"
