"""Key formats, such as `account:{account}`: checked when a task is declared, rendered by the database at enqueue.

A format names parameters of the task and `{tenant}`; `{{` and `}}` are braces. SQL renders it from the payload, so jobs
that psql enqueues have the same keys.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from difflib import get_close_matches


def check_format(where: str, text: str, parameters: Sequence[str], *, any_name: bool = False) -> None:
    """Raises ValueError unless the format is valid and names only these parameters. `any_name`: others may exist."""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        raise ValueError(f"{where}={text!r} is invalid: {error}; write {{{{ and }}}} for braces") from None
    known = [*parameters, "tenant"]
    for _, name, specification, conversion in parts:
        if name is None:
            continue
        if not name.isidentifier() or specification or conversion:
            raise ValueError(
                f"{where}={text!r} is invalid: {{{name}}} must be the name of a parameter, and nothing else"
            )
        if name not in known and not any_name:
            near = get_close_matches(name, known, n=1)
            guess = f" Did you mean {{{near[0]}}}?" if near else ""
            raise ValueError(
                f"{where}={text!r} is invalid: there is no parameter {name}.{guess} The names are {', '.join(known)}."
            )


def escape(text: object) -> str:
    """A format that renders as this text."""
    return str(text).replace("{", "{{").replace("}", "}}")
