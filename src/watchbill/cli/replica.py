"""Commands that only read use the standby of the setting read_url, and say how old its data is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from watchbill.cli.screen import say_wrapped
from watchbill.client.figure_operations import data_age
from watchbill.errors import NoDatabase
from watchbill.model.durations import show_duration

if TYPE_CHECKING:
    from watchbill.client.client import Client

RECHECK_SECONDS = 10.0  # a standby that does not answer is left out for so long
_silent_until: dict[str, float] = {}
_told: set[str] = set()  # a command may open several clients


def is_usable(replica: Client) -> bool:
    """Says on stderr how old the data of the standby is. Returns False, and says why, if it does not answer."""
    if time.monotonic() < _silent_until.get(replica.url, 0.0):
        return False
    try:
        age = replica.run(data_age())
    except NoDatabase as error:
        _silent_until[replica.url] = time.monotonic() + RECHECK_SECONDS
        _tell(f"read_url does not answer, so this is from database_url. {error.message}")
        return False
    if age is not None:
        _tell(f"From a standby. Its last change is {show_duration(age)} old.")
    return True


def _tell(line: str) -> None:
    if line.partition(".")[0] not in _told:
        _told.add(line.partition(".")[0])
        say_wrapped(line, "", err=True)
