"""docs/howto/logging.md: the recipes in one program, with a Sentry that collects instead of sending."""

from __future__ import annotations

import json
from pathlib import Path

from tests.docs.programs import blocks, run_program

PAGE = "howto/logging.md"
_BEFORE_SENTRY = """
import functools, sentry_sdk
from sentry_sdk.transport import Transport

class Collected(Transport):
    events = []
    def capture_envelope(self, envelope):
        self.events += [item.payload.json for item in envelope.items if item.type == "event"]

SENTRY_DSN = "https://key@sentry.invalid/1"
sentry_sdk.init = functools.partial(sentry_sdk.init, transport=Collected)
"""
_AT_THE_END = """
from watchbill import Retry

@app.task(retry=Retry(max_attempts=3, base=0))
async def breaks(order: int) -> None:
    logging.getLogger("shop").info("trying")
    raise ValueError(f"order {order} is broken")

@app.task(retry=Retry(max_attempts=2, base=0), executor=None)
def recovers() -> None:
    from watchbill import current_job
    if current_job().attempt == 1:
        raise ValueError("once")
    sentry_sdk.capture_message("reported by a handler")

from watchbill import JobFailed

jobs = charge.enqueue(7), recovers.enqueue(), breaks.enqueue(8)
with app.node(poll_interval=0.01):
    for job in jobs:
        try:
            job.result(timeout=30)
        except JobFailed:
            pass
sentry_sdk.flush()
print(json.dumps({"ids": [str(job.id) for job in jobs], "events": Collected.events}))
"""


def test_logging_recipes_work_together(schema_database: str, tmp_path: Path) -> None:
    own_handler, with_structlog, with_sentry, traced = blocks(PAGE)
    program = ["import json", own_handler, with_structlog, _BEFORE_SENTRY, with_sentry, traced, _AT_THE_END]
    said = run_program("\n".join(program), tmp_path, {"DATABASE_URL": schema_database}).splitlines()
    answer = json.loads(said[-1])
    charged, recovered, broken = answer["ids"]
    logged = [json.loads(line) for line in said[:-1]]
    assert {"event": "charged", "order": 7, "job_id": charged, "attempt": 1, "task": "program.charge"} in logged

    dead, reported = sorted(answer["events"], key=lambda event: event.get("level") == "info")
    assert dead["exception"]["values"][-1]["type"] == "ValueError", "one event per dead job, none per retry"
    assert (dead["extra"]["job_id"], dead["extra"]["attempt"]) == (broken, 3)
    assert dead["exception"]["values"][-1]["stacktrace"]["frames"][-1]["function"] == "breaks"
    warned = [each for each in dead["breadcrumbs"]["values"] if "has failed, attempt" in each["message"]]
    assert warned
    assert (reported["message"], reported["tags"]["job.id"]) == ("reported by a handler", recovered)
