"""Tasks that log, one of each kind, in a process that `watchbill worker` owns."""

from __future__ import annotations

import logging

from watchbill import App, Retry

app = App()
logger = logging.getLogger("shop")
SOON = Retry(max_attempts=2, base=0.01)


@app.task
async def on_loop() -> None:
    logger.info("hello from the loop", extra={"order": 7})


@app.task
def in_thread() -> None:
    logger.info("hello from a thread")


@app.task(executor="process")
def in_process() -> None:
    logger.info("hello from a process")


@app.task(retry=SOON)
async def fails_on_loop() -> None:
    raise ValueError("no such order\nand more")


@app.task(retry=SOON)
def fails_in_thread() -> None:
    raise ValueError("no such order")


@app.task(retry=SOON, executor="process")
def fails_in_process() -> None:
    raise ValueError("no such order")
