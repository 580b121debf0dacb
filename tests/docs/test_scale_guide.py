"""docs/howto/scale.md: one App enqueues into two cells as the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

from tests.docs.programs import blocks, run_program
from tests.servers import Server
from tests.store.conftest import template

PAGE = "howto/scale.md"
TASK = """
@app.task(type="bill")
async def bill(order: int) -> None: ...
"""


def test_scale_guide_routes_calls_to_cells(server: Server, tmp_path: Path) -> None:
    urls = [server.url(server.create_database(template(server))) for _ in range(2)]
    settings = next(block for block in blocks(PAGE, "toml") if "[cells]" in block)
    given = re.findall('"(postgresql://[^"]+)"', settings)
    for shown, url in zip(given, (urls[0], urls[1], urls[1]), strict=True):
        settings = settings.replace(shown, url)
    (tmp_path / "watchbill.toml").write_text(settings)
    (program,) = blocks(PAGE)
    first, rest = program.split("\n\n", 1)
    begin = f'from watchbill import App\n\ndirectory = {{"acme": "a"}}\n{first}\n{TASK}\n'
    run_program(f"{begin}{rest}\napp.close()\n", tmp_path, {})
    found = []
    for url in urls:
        with psycopg.connect(url) as connection:
            found.append(connection.execute("SELECT tenant FROM watchbill.job").fetchall())
            paused = connection.execute("SELECT queue FROM watchbill.pauses").fetchall()
    assert (found, paused) == ([[("acme",)], [("default",)]], [("mail",)])
