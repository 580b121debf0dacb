"""A web server of an example, in a process of its own, on a socket that the test has opened: it answers when it can."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

PATIENCE = 60


class Web:
    """`web("POST", "/orders/", {"item": "tea"})` gives the status and what the answer's JSON holds."""

    def __init__(self, port: int, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        self.port, self.process, self._log = port, process, log

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            raise AssertionError(f"no answer: {error}\n{self.said}") from error

    @property
    def said(self) -> str:
        self._log.seek(0)
        return self._log.read().decode()


@contextmanager
def serving(command: list[str], directory: Path, environment: Mapping[str, str]) -> Iterator[Web]:
    """`{fd}` in the command is the socket. It is told to stop at the end, and must do so in order."""
    with socket.create_server(("127.0.0.1", 0)) as listening, tempfile.TemporaryFile() as log:
        fd = listening.fileno()
        process = subprocess.Popen(
            [word.format(fd=fd) for word in command],
            cwd=directory,
            env=dict(environment),
            pass_fds=(fd,),
            stdout=log,
            stderr=log,
        )
        web = Web(listening.getsockname()[1], process, log)
        try:
            yield web
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) in (0, -signal.SIGTERM), web.said  # some do what they can, and then obey
        finally:
            process.kill()
            process.wait()
