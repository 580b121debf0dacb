"""The pictures of README and docs. `WRITE_PICTURES=1 pytest tests/browser/test_pictures.py` writes them anew: look
at each of them before you commit it. Fonts differ from machine to machine, so only their sizes are compared."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Site, Visitor

FOLDER = Path(__file__).parents[2] / "docs" / "images"
PICTURES = {
    "overview": ("/", 1440, 980, "light"),
    "overview-dark": ("/", 1440, 980, "dark"),
    "jobs": ("/jobs?q=payload.user.id:42", 1440, 900, "light"),
    "job": ("/job/{mail}", 1440, 1100, "light"),
    "job-phone": ("/job/{mail}", 390, 844, "dark"),
    "failures": ("/failures?group={refused}", 1440, 860, "light"),
    "schedule": ("/schedule?name=nightly-report", 1440, 900, "light"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_up_to_date_in_its_size(visit: Callable[..., Visitor], site: Site, name: str) -> None:
    path, width, height, theme = PICTURES[name]
    page = visit(width=width, theme=theme).open(path.format(**(site.story.jobs | site.story.groups)))
    page.set_viewport_size({"width": width, "height": height})
    expect(page.locator("#live")).to_contain_text("live", timeout=60_000)
    picture = page.screenshot(animations="disabled")
    if os.environ.get("WRITE_PICTURES"):
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{name}.png").write_bytes(picture)
    assert read_size((FOLDER / f"{name}.png").read_bytes()) == read_size(picture) == (width, height)


def read_size(picture: bytes) -> tuple[int, int]:
    """The width and height in the header of a PNG."""
    width, height = struct.unpack(">II", picture[16:24])
    return int(width), int(height)


def test_no_picture_is_left_over() -> None:
    assert {file.stem for file in FOLDER.glob("*.png")} == set(PICTURES)
