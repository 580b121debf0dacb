"""The steps of one run of a job: which are stored, and what each call has to do.

What a step does is written once, as a generator that yields requests: store this, call that. `Steps` and `AsyncSteps`
carry them out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import blake2b
from typing import Any, NoReturn

import orjson

from watchbill.model.steps import (
    SignalTimeout,
    StepError,
    StepFailed,
    StepKind,
    StepMismatch,
    SuspensionSwallowed,
    Unwind,
)
from watchbill.worker.checkpoints import Checkpointer, NewStep, SignalWait, StoredStep
from watchbill.worker.outcomes import describe_error
from watchbill.worker.run import Run
from watchbill.worker.step_calls import (
    EPOCH_2000,
    PUBLISHED,
    UNDOING,
    Ask,
    Call,
    CurrentStep,
    Program,
    Request,
    Undo,
    WaitForSteps,
    check_name,
)
from watchbill.worker.step_options import StepOptions
from watchbill.worker.step_transactions import StepTransactions
from watchbill.worker.step_values import explain_version, read_signal

logger = logging.getLogger("watchbill.worker")

MOST_STEPS = 10_000  # of a job: a run loads them all


@dataclass(slots=True)
class _Failure:
    """A step that is stored only if the handler goes on: a failure, or which branch of `steps.gather` has failed."""

    step: NewStep
    number: int  # how many steps had been called when it was raised
    prefix: str  # of the branch in which it was raised
    is_stored: bool = False


class Session:
    """The steps of one run of a job: those that earlier runs have stored, and those of this run."""

    def __init__(
        self,
        run: Run,
        stored: list[StoredStep],
        checkpointer: Checkpointer,
        transactions: StepTransactions,
        is_draining: Callable[[], bool],
    ) -> None:
        self.run, self.checkpointer, self._is_draining = run, checkpointer, is_draining
        self.transactions = transactions
        self._stored = {step.name: step for step in stored}
        self._seq = max((step.seq for step in stored), default=0)
        self._called: Counter[str] = Counter()
        self._names: set[str] = set()
        self._number = 0
        self._failures: list[_Failure] = []
        self._published: dict[str, Any] = {}
        self._is_publishing = False  # something was published since the last step was stored
        self._shown = self._stored.get(PUBLISHED)
        self._running = 0
        self.handler_waits = False
        self.may_leave = asyncio.Event()  # the handler waits, with all its branches, and no step is under way
        self._waits: list[str] = []  # the steps in which it waits
        self.undoing = self._stored.get(UNDOING)
        self._is_past_handler = False
        self.undos: dict[str, Undo] = {}
        run.is_undoing = self.undoing is not None
        self.is_quiet = asyncio.Event()  # no step is under way
        self.is_quiet.set()
        self.unwinding: Unwind | None = None

    # -- names

    def draw(self, kind: StepKind, name: str, options: StepOptions, prefix: str = "") -> Call:
        """Gives a call its name. This happens when the step is called, and not when it is awaited, so that steps that
        run side by side have the same names in each run."""
        self._number += 1
        drawn = self.draw_name(name, options.key, prefix)
        rest = drawn[len(prefix) + len(name) :]
        aliases = tuple(f"{prefix}{alias}{rest}" for alias in options.aliases)
        return Call(drawn, kind, self._number, prefix, options, aliases)

    def draw_name(self, name: str, key: str | None, prefix: str) -> str:
        check_name(name, key)
        base = prefix + (name if key is None else f"{name}[{key}]")
        self._called[base] += 1
        number = self._called[base]
        drawn = base if number == 1 else f"{base}#{number}"
        self._names.add(drawn)
        return drawn

    def derive_bytes(self, name: str, prefix: str) -> bytes:
        """Returns 16 bytes that are the same in each run, and differ from those of other jobs and names."""
        return blake2b(self.run.claimed.id + self.draw_name(name, None, prefix).encode(), digest_size=16).digest()

    # -- what a step does

    def sleep(self, call: Call, delay: float | None, wake_at: int | None) -> Program:
        stored = self.find(call)
        if stored is not None and stored.state == "done":
            return None
        yield from self.store_pending(call)
        is_over = stored is not None and stored.remaining is not None and stored.remaining <= 0
        if is_over or (stored is None and delay == 0):
            yield from self.store(call, "done")
            return None
        if stored is None:
            yield from self.store(call, "waiting", delay=delay, wake_at=wake_at)
        yield from self.leave(call, "sleeps")

    def receive(self, call: Call, names: tuple[str, ...], ask: bytes | None, timeout: float | None) -> Program:
        stored = self.find(call)
        if stored is None or stored.state == "waiting":
            yield from self.store_pending(call)
            self._seq += 1
            state, result = yield Ask(
                self.checkpointer.receive(
                    SignalWait(self.run.claimed, call.name, self._seq, names, ask, timeout),
                )
            )
        else:
            state, result = stored.state, stored.result
        match state:
            case "done":
                signal = read_signal(result)
                if signal.name not in names:
                    raise self._make_mismatch(call, f"when it waited for other signals: it has read {signal.name}")
                return signal
            case "timed_out":
                raise SignalTimeout(call.name, names)
            case "waiting":
                yield from self.leave(call, "waits for a signal")
            case _:
                raise self.unwind("released", "another node has the job")

    def read_now(self, call: Call) -> Program:
        stored = self.find(call)
        if stored is not None:
            microseconds = orjson.loads(stored.result or b"0")
        else:
            yield from self.store_pending(call)
            microseconds = yield Ask(self.checkpointer.read_clock())
            yield from self.store(call, "done", result=orjson.dumps(microseconds))
        return EPOCH_2000 + timedelta(microseconds=microseconds)

    def restart(self, arguments: dict[str, Any]) -> Program:
        """Begins the job anew, with these arguments and without steps."""
        if self.undoing is not None:
            raise self.leave_to_undo("restart")
        self.check_may_begin()
        assert self.run.handler.encode_payload is not None
        payload = self.run.handler.encode_payload(arguments)
        yield WaitForSteps()
        if not (yield Ask(self.checkpointer.restart(self.run.claimed, payload))):
            raise self.unwind("released", "another node has the job")
        self._waits.clear()
        raise self.unwind("suspended", "the job begins anew")

    def publish(self, values: dict[str, Any]) -> None:
        """Keeps values that are stored before the next step."""
        self.check()
        try:
            size = len(orjson.dumps(self._published | values))
        except TypeError as error:
            raise TypeError(f"steps.publish(...) is invalid: the values must be JSON: {error}") from None
        if size > self.run.handler.max_result:
            raise ValueError(f"steps.publish(...) has {size:,} bytes, the limit is {self.run.handler.max_result:,}")
        self._published |= values
        self._is_publishing = True

    def find_under_alias(self, call: Call) -> tuple[Call, StoredStep | None]:
        """Returns what is stored of the step, perhaps under a former name, which it then keeps."""
        for name in (call.name, *call.aliases):
            stored = self._stored.get(name)
            if stored is not None:
                self._names.add(name)
                return replace(call, name=name), stored
        return call, None

    def find(self, call: Call) -> StoredStep | None:
        stored = self._stored.get(call.name)
        self.begin(call, stored)
        return stored

    def begin(self, call: Call, stored: StoredStep | None) -> None:
        """Raises if what is stored does not fit to this call, or if the run has to end."""
        self.check()
        if stored is not None:
            self._check_fit(call, stored)
        if self.undoing is not None and not self._is_past_handler and (stored is None or not stored.ended):
            raise self.leave_to_undo(call.name)
        if stored is not None:
            return
        self.check_may_begin()
        if self._seq >= MOST_STEPS:
            raise StepError(
                f"The job has stored {self._seq:,} steps, which is the most that a job may have.",
                hint="Do more in each step, or give parts of the work to jobs of their own.",
            )

    def check_may_begin(self) -> None:
        """Ends the run before the next step if its node drains, or if it was asked to stop."""
        self.check()
        if self._is_draining() or self.run.stopping is not None:
            raise self.unwind("released", "this node ends, or the handler was asked to stop")

    def check(self) -> None:
        """Raises again what made the handler end, because the handler has caught it and goes on. If it ended to undo
        steps, its other branches go on through what is stored."""
        if self.unwinding is not None and not self._has_reached_new_step:
            raise self.unwinding

    def leave_to_undo(self, step: str) -> Unwind:
        """Ends the handler before a step that is not stored, because the job undoes its steps."""
        return self.unwind("undone", f"step {step} is not stored, and the job undoes its steps")

    def _check_fit(self, call: Call, stored: StoredStep) -> None:
        if stored.kind != call.kind:
            what = f"as a step of another kind ({stored.kind}, not {call.kind})"
        elif (misfit := explain_version(call, stored)) is not None:
            what = misfit
        elif (
            None not in (stored.digest, call.digest)
            and stored.digest != call.digest
            and stored.version == call.options.version
        ):
            what = "with other arguments"
        else:
            return
        raise self._make_mismatch(call, what)

    def _make_mismatch(self, call: Call, what: str) -> StepMismatch:
        return StepMismatch(
            f"Step {call.name} was stored by an earlier run {what}. Perhaps the code around it runs in another order. "
            "Nothing was run.",
            hint="Give the step a key or a name of its own: steps.using(key=...). Deploy the change and retry the job: "
            "it continues with this step.",
        )

    def note_failure(self, call: Call, error: Exception, began: float) -> StepFailed:
        described = describe_error(error, "retryable")
        step = self.make_step(call, "failed", began=began, error=orjson.dumps(described))
        self._failures.append(_Failure(step, self._number, call.prefix))
        return StepFailed(call.name, described, is_stored=False)

    def choose_error(self, call: Call, errors: dict[int, BaseException], *, others_wait: bool) -> BaseException:
        """Chooses which error of its branches `steps.gather` raises. If others wait, they may fail in a later run too:
        so this choice is stored if the handler goes on, and each later run raises the same error."""
        self.check()
        if self._has_reached_new_step:
            return self.leave_to_undo(call.name)
        stored = self._stored.get(call.name)
        if stored is not None:
            self._check_fit(call, stored)
        place = min(errors) if stored is None else int(stored.result or b"0")
        if stored is None and others_wait:
            step = self.make_step(call, "done", result=str(place).encode())
            self._failures.append(_Failure(step, self._number, call.prefix))
        self._waits = [name for name in self._waits if not name.startswith(f"{call.name}[")]
        return errors.get(place) or errors[min(errors)]

    def store_pending(self, call: Call) -> Generator[Request, Any, None]:
        """Stores what was published, and the failures that were raised before this step was called, in its branch or in
        one that its branch has called: the handler has caught them and goes on, so each later run must go the same
        way."""
        for failure in [each for each in self._failures if each.number < call.number and not each.is_stored]:
            if failure.prefix.startswith(call.prefix):
                yield from self._save(failure.step)
                failure.is_stored = True
        if self._is_publishing:
            self._is_publishing = False
            if self._shown is not None and orjson.loads(self._shown.result or b"null") == self._published:
                return
            self._shown = None
            published = orjson.dumps(self._published)
            yield from self._save(NewStep(self.run.claimed, PUBLISHED, "published", "begun", 0, result=published))

    def store(self, call: Call, state: str, **values: Any) -> Generator[Request, Any, None]:
        yield from self._save(self.make_step(call, state, **values))

    def _save(self, step: NewStep) -> Generator[Request, Any, None]:
        if not (yield Ask(self.checkpointer.save(step))):
            raise self.unwind("released", "another node has the job")

    def make_step(self, call: Call, state: str, **values: Any) -> NewStep:
        self._seq += 1
        return NewStep(
            self.run.claimed, call.name, call.kind, state, self._seq, call.digest, call.options.version,
            has_undo=call.options.undo is not None, **values,
        )  # fmt: skip

    def leave(self, call: Call, why: str) -> Generator[Request, Any, NoReturn]:
        """Ends the run when no step is under way: the job is suspended in this step."""
        self._waits.append(call.name)
        yield WaitForSteps()
        raise self.unwind("suspended", f"step {call.name} {why}")

    def note_undo(self, call: Call, result: Any) -> Any:
        """Returns the result of a step, and keeps it for the undo of the step."""
        if call.options.undo is not None:
            self.undos[call.name] = Undo(call.options.undo, result)
        return result

    def list_undoable_steps(self) -> Sequence[StoredStep]:
        """The stored steps that have an undo, the last one first."""
        found = [step for step in self._stored.values() if step.has_undo and step.state == "done"]
        return sorted(found, key=lambda step: -step.seq)

    def forget_wait(self, unwinding: Unwind) -> Unwind:
        """Lets the next branch of a `def` be called after one that waits. Raises what else ends the run."""
        if self.unwinding is None or self.unwinding.outcome == "released":
            raise unwinding
        if self.unwinding.outcome == "suspended":
            self.unwinding = None
        return unwinding

    def begin_undoing(self, error: BaseException | None) -> bool:
        """Called when the handler has ended. Returns whether the run has to undo steps now."""
        if self.undoing is None or not (error is None or isinstance(error, Exception) or self._has_reached_new_step):
            return False
        self._is_past_handler, self.unwinding = True, None
        self._failures.clear()
        self._waits.clear()
        return True

    @property
    def _has_reached_new_step(self) -> bool:
        return self.unwinding is not None and self.unwinding.outcome == "undone"

    def unwind(self, outcome: Any, why: str) -> Unwind:
        self.check()
        if self.unwinding is not None:  # to undo steps
            return self.unwinding
        waits = tuple(self._waits) if outcome == "suspended" and self.handler_waits else None
        self.unwinding = Unwind(outcome, why, waits=waits)
        return self.unwinding

    @contextmanager
    def count_running(self) -> Iterator[None]:
        self._running += 1
        self.is_quiet.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self.is_quiet.set()
                self.check_may_leave()

    def check_may_leave(self) -> None:
        if self.handler_waits and not self._running:
            self.may_leave.set()

    def make_current_step(self, call: Call) -> CurrentStep:
        return CurrentStep(call.name, f"{self.run.id}:{call.name}")

    # -- the end of the run

    def check_return(self) -> None:
        """Called when the handler has returned."""
        if self.unwinding is not None:
            raise SuspensionSwallowed(
                f"The handler has returned although it had to end earlier: {self.unwinding}.",
                hint="A bare `except:`, `except BaseException:` or `return` in a `finally` has swallowed that. Use "
                "`except Exception:`.",
            )
        unused = self._stored.keys() - self._names - {PUBLISHED}
        if unused:
            logger.info(
                "Job %s (%s) has ended without calling these steps, which an earlier run has stored: %s",
                self.run.id, self.run.type, ", ".join(sorted(unused)),
            )  # fmt: skip

    def find_cause(self, error: BaseException) -> BaseException:
        """Returns the Unwind in place of an exception group that has nothing else: asyncio.TaskGroup raises such."""
        if self.unwinding is not None and isinstance(error, BaseExceptionGroup):
            _, others = error.split(lambda each: isinstance(each, Unwind | asyncio.CancelledError))
            if others is None:
                return self.unwinding
        return error
