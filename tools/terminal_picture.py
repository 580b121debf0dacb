"""Draws docs/terminal.svg: what commands print on a terminal of 100 columns, in a shop with a few jobs.

`python tools/terminal_picture.py URL` takes the address of an empty database, writes the schema and the jobs into it,
and runs the commands in a pseudo-terminal.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from html import escape
from pathlib import Path

import psycopg

PICTURE = Path(__file__).parents[1] / "docs" / "terminal.svg"
COLUMNS = 100
COMMANDS = ("watchbill queues", "watchbill jobs --limit 6", "watchbill dead groups", "watchbill jobs why {waiting}")
SCENE = """
SELECT watchbill.register('web-1', queues => '{default,mail}');
SELECT watchbill.set_limit('crm-api', rates => '[{"count": 10, "per": "1 minute"}]');
SELECT watchbill.enqueue('shop.charge', '{"order": 1}', max_attempts => 1);
SELECT watchbill.enqueue('shop.charge', '{"order": 2}', max_attempts => 1);
SELECT watchbill.fail(
  c.id, c.fence, jsonb_build_object('type', 'Timeout', 'message', 'bank 10.0.0.' || c.seq || ' did not answer'), false)
FROM watchbill.node n, LATERAL (
  SELECT c.id, c.fence, row_number() OVER () AS seq FROM watchbill.claim(n.epoch, max => 9) c) c;
SELECT watchbill.enqueue('shop.lookup', '{"customer": 7}', limit_keys => '{crm-api}') FROM generate_series(1, 11);
SELECT watchbill.claim(epoch, max => 99) FROM watchbill.node;
SELECT watchbill.promote();
SELECT watchbill.enqueue('shop.report', delay => '3 hours');
SELECT watchbill.enqueue('mail.send', '{"to": "you"}', queue => 'mail');
"""
_COLOURS = {31: "#f97583", 32: "#85e89d", 33: "#ffea7f", 34: "#79b8ff", 35: "#b392f0", 36: "#56d4dd"}
_STYLE = re.compile(r"\x1b\[([\d;]*)m")
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
_ADVANCE, _LEADING, _MARGIN = 8.43, 19, 16  # of a character, of a line, around the text


def draw(lines: list[str]) -> str:
    """The lines, with their colours, as an SVG picture."""
    width, height = round(COLUMNS * _ADVANCE) + 2 * _MARGIN, len(lines) * _LEADING + 2 * _MARGIN
    rows = [
        f'<text x="{_MARGIN}" y="{_MARGIN + 14 + number * _LEADING}" xml:space="preserve">{_paint(line)}</text>'
        for number, line in enumerate(lines)
        if line
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' font-family="{_FONT}" font-size="14" fill="#e1e4e8" role="img">'
    )
    title = "<title>Commands of Watchbill on a terminal</title>"
    ground = f'<rect width="{width}" height="{height}" rx="8" fill="#24292e"/>'
    return "\n".join([head, title, ground, *rows, "</svg>\n"])


def _paint(line: str) -> str:
    """One line with its escape sequences as tspans."""
    text, attributes = "", ""
    for number, piece in enumerate(_STYLE.split(line)):
        if number % 2:
            attributes = _read_style(attributes, piece)
        elif piece:
            text += f"<tspan{attributes}>{escape(piece)}</tspan>" if attributes else escape(piece)
    return text


def _read_style(attributes: str, codes: str) -> str:
    for code in (int(each or 0) for each in codes.split(";")):
        if code == 0:
            attributes = ""
        elif code == 1:
            attributes += ' font-weight="bold"'
        elif code == 2:
            attributes += ' fill-opacity="0.6"'
        elif code in _COLOURS:
            attributes += f' fill="{_COLOURS[code]}"'
    return attributes


def run_on_terminal(command: list[str], environment: dict[str, str]) -> list[str]:
    """What a command prints on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    output = bytearray()
    while True:
        try:
            output += os.read(ours, 65536)
        except OSError:  # the command has ended
            break
    os.close(ours)
    process.wait()
    return output.decode().replace("\r\n", "\n").rstrip("\n").split("\n")


def main(url: str) -> None:
    environment = {**os.environ, "WATCHBILL_DATABASE_URL": url, "TERM": "xterm", "TZ": "UTC"}
    watchbill = [sys.executable, "-m", "watchbill.cli"]
    subprocess.run([*watchbill, "db", "migrate"], env=environment, check=True, stdout=subprocess.DEVNULL)
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in SCENE.split(";\n")[:-1]:
            connection.execute(statement.encode())
        found = connection.execute("SELECT id FROM watchbill.job WHERE waits = 'limited' LIMIT 1").fetchone()
    assert found is not None, "no job of the scene waits for its limit"
    lines = []
    for text in COMMANDS:
        _, *arguments = text.format(waiting=str(found[0])[:18]).split()
        lines += [f"\x1b[1m$ watchbill {' '.join(arguments)}\x1b[0m"]
        lines += [*run_on_terminal([*watchbill, *arguments], environment), ""]
    PICTURE.write_text(draw(lines[:-1]), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
