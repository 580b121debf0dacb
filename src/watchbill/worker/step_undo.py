"""Undoing: when a job has died or is canceled, its next run calls the undo of each stored step that has one, the last
step first. Each of these calls is a step itself, so that a crash repeats none of them.

The database decides that a job undoes its steps, and stores that as the step `undo/`. The run that finds it there calls
the handler only to learn the functions and the results: at the first step that is not stored, the handler is left.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from watchbill.model.steps import StepError, StepFailed, Unwind
from watchbill.worker.step_calls import UNDOING, Call, Program, Undo
from watchbill.worker.step_options import Step, StepOptions
from watchbill.worker.step_run import run_step
from watchbill.worker.step_transactions import takes_connection

if TYPE_CHECKING:
    from watchbill.worker.checkpoints import StoredStep
    from watchbill.worker.step_session import Session


def run_undos(session: Session, undoing: StoredStep) -> Program:
    """Undoes the steps of the run, and ends it. An undo that fails for good does not stop the others."""
    problems: list[str] = []
    for stored in session.list_undoable_steps():
        undo = session.undos.get(stored.name)
        if undo is None:
            problems.append(f"{stored.name} (the handler has not called this step)")
            continue
        try:
            yield from run_step(session, _make_call(session, stored.name, undo))
        except StepError as problem:
            if isinstance(problem, StepFailed) and not problem.is_permanent:
                raise
            problems.append(f"{stored.name} ({problem})")
    error = orjson.loads(undoing.error or b"{}")
    if problems:
        error["message"] = f"{error.get('message')}; these steps were not undone: {', '.join(problems)}"
    if not undoing.ended:
        call = Call(UNDOING, "undo", 0)
        yield from session.store(call, "done", error=orjson.dumps(error))
    raise Unwind("undone", "the steps of the job are undone", error=error)


def _make_call(session: Session, name: str, undo: Undo) -> Call:
    step = undo.function if isinstance(undo.function, Step) else None
    function = undo.function if step is None else step.function
    options = StepOptions() if step is None else step.options
    if options.retry is None and not options.once:
        options = replace(options, retry=session.run.handler.retry)
    return Call(
        f"{UNDOING}{name}", "run", 0, options=options, function=function, args=(undo.result,),
        takes_connection=takes_connection(function),
    )  # fmt: skip
