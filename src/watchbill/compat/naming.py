"""Converts names between two spellings: `run_on_start`, and `runOnStart` as systems in JavaScript write it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any


def to_snake(name: str) -> str:
    """Turns `maxConcurrentJobs` into `max_concurrent_jobs`."""
    return re.sub(r"(?<=[a-z0-9])[A-Z]", lambda match: f"_{match[0].lower()}", name)


def to_camel(name: str) -> str:
    """Turns `max_concurrent_jobs` into `maxConcurrentJobs`."""
    return re.sub(r"_([a-z0-9])", lambda match: match[1].upper(), name)


def read_options(owner: str, given: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Returns options under their Python names. Raises if an option is unknown or given in both spellings."""
    options: dict[str, Any] = {}
    names = list(known)
    for word, value in given.items():
        name = to_snake(word)
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the options are {', '.join(names)}"
            raise TypeError(f"{owner} has no option {word!r}; {hint}")
        if name in options:
            raise TypeError(f"{owner} got {name} twice, as {name} and as {to_camel(name)}")
        options[name] = value
    return options


class Record(dict[str, Any]):
    """A dictionary whose keys can be read in both spellings: `record["jobName"]` and `record["job_name"]`."""

    def __missing__(self, key: str) -> Any:
        known = self._find_spelling(key)
        if known == key:
            raise KeyError(key)
        return self[known]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and dict.__contains__(self, self._find_spelling(key))

    def get(self, key: str, default: Any = None) -> Any:
        return dict.get(self, self._find_spelling(key), default)

    def _find_spelling(self, key: str) -> str:
        """Returns the key in the spelling that this dictionary has."""
        spellings = (key, to_camel(key), to_snake(key))
        return next((each for each in spellings if dict.__contains__(self, each)), key)
