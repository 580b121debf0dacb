"""Errors that SQL functions raise, as Python shows them: sentences, like all other errors of Watchbill."""

from __future__ import annotations

import pytest

from watchbill.store.refusals import refusal


@pytest.mark.parametrize(
    ("raised", "shown"),
    [
        ("limit 'a' is invalid: max is -1", "Limit 'a' is invalid: max is -1."),
        ("give max, or count and per", "Give max, or count and per."),
        ("set_limit needs something to change", "set_limit needs something to change."),
        ("limit_list() has the limits", "limit_list() has the limits."),
        ("Did you mean @daily?", "Did you mean @daily?"),
        ("a queue has 1 to 100 characters", "A queue has 1 to 100 characters."),
    ],
)
def test_messages_and_hints_of_sql_functions_are_sentences(raised: str, shown: str) -> None:
    error = refusal("WB003", raised, raised)
    assert error is not None
    assert (error.message, error.hint) == (shown, shown)
