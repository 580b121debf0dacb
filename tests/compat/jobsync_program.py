"""A worker as JobSync's guide writes it, in a process of its own: `python -m tests.compat.jobsync_program URL NAME`.

It works on every task that it owns, again and again, and keeps a journal: when it has begun, and when it has ended.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

from tests.compat.guide_001 import make_config
from watchbill.compat.jobsync import CoordinationConfig, Job, Task, TaskTaken

TASKS = range(40)
OPTIONS = CoordinationConfig(
    total_tokens=24, heartbeat_timeout_sec=2, heartbeat_interval_sec=0.5, dead_node_check_interval_sec=0.5
)


def main(url: str, name: str) -> None:
    with Job(name, "production", make_config(url), coordination_config=OPTIONS) as job:

        def handle(number: int, frame: FrameType | None) -> None:
            job.__exit__(None, None, None)
            sys.exit(0)

        signal.signal(signal.SIGTERM, handle)
        write = "INSERT INTO journal (node, task, event) VALUES (%s, %s, %s)"
        while True:
            for task in (Task(each) for each in TASKS):
                if not job.can_claim_task(task):
                    continue
                try:
                    job.add_task(task)
                except TaskTaken:
                    continue
                job._cn.execute(write, (name, task.id, "begin"))
                job._cn.execute(write, (name, task.id, "end"))
                job.write_audit()


if __name__ == "__main__":
    main(*sys.argv[1:])
