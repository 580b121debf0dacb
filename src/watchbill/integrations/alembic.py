"""Makes Alembic's autogenerate leave Watchbill's schemas alone.

    context.configure(..., include_schemas=True, include_name=without_watchbill())

`watchbill db migrate` makes and changes these schemas. Alembic finds no models for their tables, and would drop them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from watchbill.settings import Settings

IncludeName = Callable[[str | None, Any, Mapping[Any, Any]], bool]


def without_watchbill(include_name: IncludeName | None = None, *, schema: str | None = None) -> IncludeName:
    """Returns a function for Alembic's `include_name`. Your own function, if given, decides about all other names.

    `schema` is Watchbill's, if it is not the one in the settings (the environment, watchbill.toml or pyproject.toml).
    """
    settings = Settings.load(schema=schema)
    ours = (settings.schema, settings.jcron_schema)

    def include(name: str | None, type_: Any, parent_names: Mapping[Any, Any]) -> bool:
        found = name if type_ == "schema" else parent_names.get("schema_name")
        return found not in ours and (include_name is None or include_name(name, type_, parent_names))

    return include
