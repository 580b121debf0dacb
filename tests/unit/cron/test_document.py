"""The reference is true: its code runs, and the patterns in its tables can be read."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import watchbill.cron
from watchbill.cron import Cron

REFERENCE = Path(__file__).parents[3] / "docs/reference/cron.md"


def test_code_of_the_cron_reference_runs() -> None:
    text = REFERENCE.read_text().replace("```", "")
    test = doctest.DocTestParser().get_doctest(text, {}, "cron.md", str(REFERENCE), 0)
    result = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL).run(test)
    assert (result.failed, result.attempted > 8) == (0, True)


def test_doctest_of_the_cron_package_runs() -> None:
    assert doctest.testmod(watchbill.cron).failed == 0


def test_patterns_of_the_cron_reference_can_be_parsed() -> None:
    code = re.findall(r"`([^`\n]+)`", REFERENCE.read_text())
    patterns = [text for text in code if len(text.split()) in (5, 6, 7) and text[0] in "0123456789*"]
    assert len(patterns) > 5
    for pattern in patterns:
        Cron(pattern).explain()
