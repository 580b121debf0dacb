"""Checks key formats, such as `account:{account}`, when a task is declared. The database fills them in at enqueue.

A format names parameters of the task and `{tenant}`; `{{` and `}}` are braces. SQL fills in the values of the payload,
so that a job that is enqueued with psql has the same key.
"""

from __future__ import annotations

import inspect
import string
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any


def check_key(shown: str, by: str | Callable[..., Any], parameters: Sequence[str], *, any_name: bool = False) -> None:
    """Raises ValueError unless a format names, or a function takes, only these parameters of a task. `shown` is the
    option as people write it, for the message. `any_name`: the task takes other parameters too."""
    if isinstance(by, str):
        check_format(shown, by, parameters, any_name=any_name)
        return
    try:
        taken = inspect.signature(by).parameters.values()
    except ValueError:
        raise ValueError(f"{shown} is invalid: {by!r} does not say which arguments it takes; use a lambda") from None
    for each in taken:
        is_free = each.default is not each.empty or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        if each.name not in parameters and not is_free and not any_name:
            raise ValueError(
                f"{shown} is invalid: the function takes {each.name}, and the task has no such parameter. "
                f"The names are {', '.join(parameters)}."
            )


def check_format(shown: str, text: str, parameters: Sequence[str], *, any_name: bool = False) -> None:
    """Raises ValueError unless the format is valid and names only these parameters. With `any_name`, any name is
    allowed, because the task may have other parameters."""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        raise ValueError(f"{shown} is invalid: {error}; write {{{{ and }}}} for braces") from None
    known = [*parameters, "tenant"]
    for _, name, specification, conversion in parts:
        if name is None:
            continue
        if not name.isidentifier() or specification or conversion:
            raise ValueError(f"{shown} is invalid: {{{name}}} must be the name of a parameter, and nothing else")
        if name == "tenant" and name in parameters:
            raise ValueError(
                f"{shown} is invalid: {{tenant}} is the tenant of the job, and the task has a parameter tenant as "
                "well; rename the parameter, or use a function: lambda tenant: tenant"
            )
        if name not in known and not any_name:
            near = get_close_matches(name, known, n=1)
            guess = f" Did you mean {{{near[0]}}}?" if near else ""
            raise ValueError(
                f"{shown} is invalid: there is no parameter {name}.{guess} The names are {', '.join(known)}."
            )


def check_by(call: str, by: object) -> None:
    """Raises ValueError unless `by` of a Limit, a Rate, a Unique or a Debounce is a format or a function."""
    if not (by is None or callable(by) or (isinstance(by, str) and by)):
        raise ValueError(f"{call}(by={by!r}) is invalid: give a format such as '{{account}}', or a function")


def escape(text: object) -> str:
    """Returns a format that stands for exactly this text: braces are doubled."""
    return str(text).replace("{", "{{").replace("}", "}}")
