"""A process that holds a project's server: says so in one line, waits for the end of its input, and lets go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from watchbill.postgres.embedded import EmbeddedServer


def main(project: str, binaries: str, habit: str) -> None:
    with EmbeddedServer.acquire(Path(project), binaries=binaries, settings={"fsync": "off"}) as server:
        child = {"": _no_child, "forks": _forked_child, "spawns": _spawned_child}[habit](server)
        print(json.dumps({"url": server.url, "started": server.started, "child": child}), flush=True)
        sys.stdin.read()


def _no_child(_: EmbeddedServer) -> int:
    return 0


def _forked_child(server: EmbeddedServer) -> int:
    """One that lets go, as it would at the end of a `with`, and is gone when we go on."""
    child = os.fork()
    if child == 0:
        server.release()
        os._exit(0)
    os.waitpid(child, 0)
    return child


def _spawned_child(_: EmbeddedServer) -> int:
    """One that inherits every descriptor that is inheritable, and outlives us."""
    return subprocess.Popen(["sleep", "600"], close_fds=False, stdin=-3, stdout=-3, stderr=-3).pid


if __name__ == "__main__":
    main(*sys.argv[1:])
