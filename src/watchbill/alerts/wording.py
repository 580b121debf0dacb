"""What people read about an alert."""

from __future__ import annotations

from typing import Any

_HEADINGS = {"raised": "{severity}: {subject}", "cleared": "cleared: {subject}", "test": "test of a route"}


def write_title(event: str, data: dict[str, Any]) -> str:
    """One line: what it is about, such as `critical: unserved queue mail`."""
    return _HEADINGS[event].format(severity=data.get("severity"), subject=f"{data.get('rule')} {data.get('subject')}")


def write_lines(event: str, data: dict[str, Any]) -> list[str]:
    """The reason, the times, and a command that helps."""
    lines = [str(data["reason"])]
    if event == "test":
        return lines
    lines.append(f"since {data['since']}")
    if event == "cleared":
        lines.append(f"cleared at {data['cleared_at']}")
    elif data.get("help"):
        lines.append(f"to look: {data['help']}")
    return lines
