"""Folds the frames of libraries in a traceback, so that a person sees the own code first."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_FRAME = re.compile(r'\s*File "(?P<file>[^"]*)", line \d+, in ')
_FOREIGN = re.compile(r"site-packages/|dist-packages/|/lib/python3|/watchbill/|^<frozen |[\\/]Lib[\\/]")
_PACKAGE = re.compile(r".*(?:site-packages|dist-packages)/([^/]+)|.*/lib/python3[\d.]*/([^/.]+)|.*/(watchbill)/")
MOST_LINES = 400


@dataclass
class Line:
    """A line of a traceback. `kind`: p for what can be skipped, hit for the line that raised, err for the error."""

    text: str
    kind: str = ""


@dataclass
class _Frame:
    lines: list[str]
    file: str = ""
    is_own: bool = False
    packages: list[str] = field(default_factory=list)


def fold_traceback(text: str) -> list[Line]:
    """The lines to show: own frames in full, runs of others as one line. The last own line is the one to look at."""
    frames = _split(text.splitlines()[-MOST_LINES:])
    own = [frame for frame in frames if frame.is_own]
    shown: list[Line] = []
    foreign: list[_Frame] = []
    for frame in frames:
        if frame.file and not frame.is_own and own:
            foreign.append(frame)
            continue
        shown += _fold(foreign)
        foreign = []
        shown += _show(frame, is_last=bool(own) and frame is own[-1])
    return shown + _fold(foreign)


def _split(lines: list[str]) -> list[_Frame]:
    """Frames, and the other lines one by one: the heading, the error, what is between chained errors."""
    found: list[_Frame] = []
    for line in lines:
        if match := _FRAME.match(line):
            found.append(_Frame([line], match["file"], not _FOREIGN.search(match["file"])))
        elif found and found[-1].file and line.startswith("    "):
            found[-1].lines.append(line)
        else:
            found.append(_Frame([line]))
    return found


def _show(frame: _Frame, *, is_last: bool) -> list[Line]:
    if not frame.file:
        (text,) = frame.lines
        is_frame_text = text.startswith((" ", "Traceback ", "During ", "The above ")) or not text.strip()
        return [Line(text, "p" if is_frame_text else "err")]
    code = [index for index, text in enumerate(frame.lines) if index and text.strip(" ^~")]
    return [Line(text, "hit" if is_last and code[:1] == [index] else "") for index, text in enumerate(frame.lines)]


def _fold(frames: list[_Frame]) -> list[Line]:
    if not frames:
        return []
    names = [_PACKAGE.match(frame.file) for frame in frames]
    packages = dict.fromkeys(next(filter(None, found.groups())) for found in names if found)
    count = f"{len(frames)} {'frame' if len(frames) == 1 else 'frames'}"
    return [Line(f"  ▸ {count}{' of ' + ', '.join(packages) if packages else ''}", "p")]
