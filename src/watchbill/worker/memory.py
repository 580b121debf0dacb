"""How much memory this process has had at most."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

_PEAK = re.compile(rb"VmHWM:\s*(\d+) kB")


def peak_memory() -> int:
    """In bytes. Of this program alone, where the system tells: elsewhere the number begins with that of its parent."""
    try:
        found = _PEAK.search(Path("/proc/self/status").read_bytes())
    except OSError:
        found = None
    if found is not None:
        return int(found[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
