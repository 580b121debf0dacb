"""What a child process imports."""

from __future__ import annotations

import os

from foliot import App

app = App()


@app.task(executor="process")
def whoami() -> int:
    return os.getpid()
