"""What the worker processes of test_processes.py run."""

from __future__ import annotations

from watchbill import App

app = App(name="schedules")


@app.schedule("* * * * * *", name="each second", missed="catch_up", catch_up=1000, overlap="allow")
@app.schedule(name="at start", run_on_start=True)
@app.task(type="tick")
async def tick() -> None:
    """It is the slot that counts."""


app.declare_schedule("command", "* * * * * *", command="INSERT INTO ran VALUES (now())", missed="skip", overlap="allow")
