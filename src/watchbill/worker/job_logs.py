"""Which log lines of a run are stored, and what they do not show."""

from __future__ import annotations

import time

from watchbill.redaction import Redaction
from watchbill.telemetry.job_lines import LogTail
from watchbill.worker.handlers import KeepLogs
from watchbill.worker.run import Run


class JobLogs:
    """Reads the lines of runs. `keep` is for tasks that do not say themselves which lines are stored."""

    def __init__(self, keep: KeepLogs, redaction: Redaction) -> None:
        self._keep, self._redaction = keep, redaction

    def choose(self, run: Run, log: LogTail) -> str | None:
        """The lines of a run that has ended, if they are to be stored."""
        keep = run.handler.logs or self._keep
        has_failed = run.outcome is not None and run.outcome.name in ("failed", "timed_out")
        is_kept = keep == "all" or (keep == "failed" and has_failed) or run.watch > time.monotonic()
        return self.read(log) if is_kept else None

    def read(self, log: LogTail) -> str:
        return "\n".join(map(self._redaction.hide_text, log.read()))
