"""The dashboard that `watchbill up --dashboard` serves beside the worker, in a process of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from watchbill.cli.screen import say
from watchbill.cli.supervisor import PARENT

_PATIENCE_SECONDS = 10.0


class DashboardChild:
    """Starts with the first check. If it ends, it is not started again, because the next one would end the same way:
    its port is taken, or its libraries are missing. It says so itself, and the worker goes on."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command, self._environment = command, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._has_ended = False

    def check(self) -> None:
        if self._process is None:
            environment = {**os.environ, **self._environment, PARENT: str(os.getpid())}
            # A session of its own, so that Ctrl-C reaches it only through stop().
            self._process = subprocess.Popen(self._command, env=environment, start_new_session=True)
        elif not self._has_ended and self._process.poll() is not None:
            self._has_ended = True
            say("The dashboard has ended; the worker goes on without it.", err=True)

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
