"""`watchbill worker`: runs jobs. Production: it never migrates and never starts a database."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from watchbill.cli.output import GlobalOptions, command_group
from watchbill.cli.supervisor import (
    AT_ONCE,
    RECYCLED,
    Supervisor,
    is_child,
    own_name,
    parent_gone,
    stop_signals,
    take_plug,
)

if TYPE_CHECKING:
    from watchbill.node import Node
    from watchbill.settings import Settings

logger = logging.getLogger("watchbill.cli")

TIME_TO_END = 5.0  # for what handlers have left behind, when the node has gone

app = command_group()


@app.command()
def worker(
    ctx: typer.Context,
    application: Annotated[str | None, typer.Argument(metavar="[MODULE:APP]", help="Where the App is.")] = None,
    queues: Annotated[str | None, typer.Option(help="Queues to serve, with commas between, the first first.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Handlers that run at once.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Worker processes side by side.")] = None,
    name: Annotated[str | None, typer.Option(help="This node's name.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Stop when nothing is left to do.")] = False,
    reload: Annotated[bool, typer.Option("--reload", help="Start anew when the code changes.")] = False,
    max_jobs: Annotated[int | None, typer.Option(min=1, help="Replace a process after so many jobs.")] = None,
    max_memory: Annotated[int | None, typer.Option(min=1, help="Replace a process beyond so many MiB.")] = None,
    scheduler: Annotated[bool, typer.Option("--scheduler/--no-scheduler", help="Also fire schedules.")] = True,
    lines: Annotated[bool, typer.Option("--lines", help="Print a line per job.")] = False,
) -> None:
    """Run jobs until told to stop: the first Ctrl-C or SIGTERM drains, the second stops at once."""
    told = {
        "app": application,
        "queues": queues,
        "concurrency": concurrency,
        "processes": processes,
        "node_name": name,
    }
    settings = ctx.obj.settings(**told)
    if (settings.processes > 1 or reload or max_jobs or max_memory) and not is_child():
        raise typer.Exit(_supervise(settings, reload=reload))
    told["node_name"] = own_name(settings.node_name)
    limits = Limits(max_jobs, max_memory)
    raise typer.Exit(_work(ctx.obj, settings, told, limits, once=once, scheduler=scheduler, lines=lines))


def _supervise(settings: Settings, *, reload: bool) -> int:
    from pathlib import Path

    command = [sys.executable, "-m", "watchbill.cli", *sys.argv[1:]]
    watched = Path.cwd() if reload else None
    if settings.processes == 1 or os.name == "nt":  # there no child can inherit a socket
        return Supervisor(command, count=settings.processes, watched=watched).run()
    from watchbill.telemetry.logs import configure
    from watchbill.worker.switchboard import Switchboard

    configure(settings.log_level, settings.log_format)
    switchboard = Switchboard()
    try:
        return Supervisor(command, settings.processes, watched=watched, switchboard=switchboard).run()
    finally:
        switchboard.close()


def _work(
    options: GlobalOptions,
    settings: Settings,
    told: dict[str, Any],
    limits: Limits,
    *,
    once: bool,
    scheduler: bool,
    lines: bool,
) -> int:
    from dataclasses import replace

    from watchbill.app.hosting import ensure_usable, make_node
    from watchbill.cli.discovery import find_app
    from watchbill.cli.lines import print_lines, print_schedules, print_start
    from watchbill.telemetry.logs import configure

    configure(settings.log_level, settings.log_format)
    found, reference = find_app(settings.app)
    settings = options.settings_of(found, **told)
    address = options.address(settings)
    found.use(replace(settings, database_url=address.url))
    status = ensure_usable(found)
    node = make_node(found, once=once, scheduler=scheduler)
    node.plug = take_plug()
    print_start(found, reference, node, address, status)
    if lines:
        print_schedules(found)
        print_lines(found)
    return _run(node, limits)


def _code(node: Node, limits: Limits) -> int:
    return RECYCLED if limits.reached else node.exit_code


class Limits:
    """When a worker process is to be replaced: after so many jobs, or beyond so many MiB."""

    def __init__(self, jobs: int | None, memory: int | None) -> None:
        self._jobs, self._memory = jobs, memory
        self.reached = False

    def check(self, finished: int) -> bool:
        from watchbill.worker.memory import peak_memory

        grown = peak_memory() // 2**20
        self.reached = bool((self._jobs and finished >= self._jobs) or (self._memory and grown > self._memory))
        return self.reached


def _run(node: Node, limits: Limits) -> int:
    """The exit code. What asyncio does not stop at the edge of a task, an exit in one that a handler has started, must
    not look like an end in order."""
    try:
        import uvloop
    except ImportError:
        run = asyncio.run
    else:
        run = uvloop.run
    try:
        run(_until_stopped(node, limits))
    except SystemExit:
        logger.critical("A task that some handler has started ended the event loop", exc_info=True)
        return 1
    finally:
        for number in stop_signals():
            signal.signal(number, signal.SIG_IGN)  # all is done; an impatient one must not make it look like a failure
    return _code(node, limits)


async def _until_stopped(node: Node, limits: Limits) -> None:
    loop, told, supervised = asyncio.get_running_loop(), 0, is_child()

    def stop(number: int) -> None:
        nonlocal told
        told += 1
        at_once = number == AT_ONCE if supervised else told > 1
        (node.stop if at_once else node.drain)()

    for number in stop_signals():
        loop.add_signal_handler(number, stop, number)
    watching = loop.create_task(_watch(node, limits, parent_gone()))
    code = 1
    try:
        await node.run()
        code = _code(node, limits)
    finally:
        watching.cancel()
        _end_soon(code)
    if node.stubborn:
        for name in node.stubborn:
            logger.error("The handler of %s does not stop; the process ends without it", name)
        _end_at_once(code)


def _end_soon(code: int) -> None:
    """A loop that closes waits for its tasks, and Python for threads: for what a handler has handed to one, or for one
    that swallows every cancellation, both would wait for ever."""

    def end() -> None:
        left = ", ".join(thread.name for thread in threading.enumerate() if not thread.daemon)
        logger.error("What handlers have started does not end; the process ends without it (threads: %s)", left)
        _end_at_once(code)

    ending = threading.Timer(TIME_TO_END, end)
    ending.daemon = True
    ending.start()


def _end_at_once(code: int) -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _watch(node: Node, limits: Limits, orphaned: Callable[[], bool]) -> None:
    """Ends with its supervisor, and at its limits."""
    while True:
        await asyncio.sleep(0.5)
        if orphaned() or limits.check(node.finished):
            node.drain()
