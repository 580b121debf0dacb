"""SQL functions that a reader can take in: how long their bodies are, and how many parameters they have.

The room `claim` has the strictest rules: most capabilities change it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from watchbill.postgres.migration_files import Source

LONGEST_BODY, MOST_PARAMETERS = 60, 7  # in the room `claim`

# The parameters of claim are a promise to every caller.
TOO_MANY_PARAMETERS = {"claim"}

# Of the whole schema: bodies over 100 lines. The list only becomes shorter.
VERY_LONG_BODY = 100
VERY_LONG = {"_cron_find_prev_instant", "_cron_parse_fields", "_find_next_instant"}

_FUNCTION = re.compile(
    r"CREATE OR REPLACE FUNCTION (?P<name>\w+)\((?P<parameters>.*?)\)\n(?:RETURNS|LANGUAGE)"
    r".*?(?:AS (?P<quote>\$\w*\$)(?P<body>.*?)(?P=quote);|BEGIN ATOMIC(?P<atomic>.*?)\nEND;|\nRETURN .*?;\n)",
    re.DOTALL,
)


class Function(NamedTuple):
    name: str
    room: str
    lines: int
    parameters: int


def read_functions() -> Iterator[Function]:
    for file in Source.of_package("watchbill.store").functions:
        for found in _FUNCTION.finditer(file.text):
            body = found["body"] or found["atomic"] or ""
            yield Function(found["name"], file.name.split("/")[0], body.count("\n"), count_inputs(found["parameters"]))


def count_inputs(parameters: str) -> int:
    plain = re.sub(r"--[^\n]*|\([^()]*\)|'[^']*'", "", parameters)
    return sum(bool(each.strip()) and not each.strip().startswith("OUT ") for each in plain.split(","))


def test_bodies_of_claim_are_short() -> None:
    long = {
        function.name for function in read_functions() if function.room == "claim" and function.lines > LONGEST_BODY
    }
    assert sorted(long) == []


def test_functions_of_claim_have_few_parameters() -> None:
    many = {
        function.name
        for function in read_functions()
        if function.room == "claim" and function.parameters > MOST_PARAMETERS
    }
    assert sorted(many - TOO_MANY_PARAMETERS) == []


def test_few_bodies_are_very_long() -> None:
    long = {function.name for function in read_functions() if function.lines > VERY_LONG_BODY}
    assert sorted(long - VERY_LONG) == []
