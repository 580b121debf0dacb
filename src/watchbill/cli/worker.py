"""`watchbill worker`: runs jobs. The command is for production, so it never migrates and never starts a database."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from watchbill.cli import supervisor
from watchbill.cli.cells import list_cells
from watchbill.cli.discovery import find_app
from watchbill.cli.help import command_group
from watchbill.cli.lines import JobLines

if TYPE_CHECKING:
    from watchbill.cli.output import GlobalOptions
    from watchbill.node import Node
    from watchbill.settings import Settings

logger = logging.getLogger("watchbill.cli")

LEFTOVER_TIMEOUT_SECONDS = 5.0  # how long the ended node waits for asyncio tasks and threads that handlers have left

app = command_group()


@app.command(over_cells="by itself")
def worker(
    ctx: typer.Context,
    application: Annotated[str | None, typer.Argument(metavar="[MODULE:APP]", help="Where the App is.")] = None,
    queues: Annotated[
        str | None, typer.Option(help="Queues to serve, in this order, or by weights: mail:3,default:1.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="How many handlers run at once.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="How many worker processes run.")] = None,
    name: Annotated[str | None, typer.Option(help="This node's name.")] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A label of this node, such as gpu=a100; repeatable.")
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="If a living node has this name, fence it and take its place.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Stop when no job is left to run.")] = False,
    reload: Annotated[bool, typer.Option("--reload", help="Restart when the code changes.")] = False,
    max_jobs: Annotated[int | None, typer.Option(min=1, help="Replace a process after this many jobs.")] = None,
    max_memory: Annotated[int | None, typer.Option(min=1, help="Replace a process that exceeds this many MiB.")] = None,
    scheduler: Annotated[bool, typer.Option("--scheduler/--no-scheduler", help="Also fire schedules.")] = True,
    lines: Annotated[bool, typer.Option("--lines", help="Print a line per job.")] = False,
) -> None:
    """Run jobs until stopped: the first Ctrl-C or SIGTERM drains, the second stops at once."""
    options = {
        "app": application,
        "queues": queues,
        "concurrency": concurrency,
        "processes": processes,
        "node_name": name,
        "labels": label or None,
    }
    if ctx.obj.cell == "all":
        raise typer.Exit(_run_for_all_cells(ctx.obj, options, reload=reload))
    settings = ctx.obj.load_settings(**options)
    if settings.cell is not None:
        os.environ["WATCHBILL_CELL"] = settings.cell  # for child processes, which run CPU-bound tasks
    if (settings.processes > 1 or reload or max_jobs or max_memory) and not supervisor.is_child():
        raise typer.Exit(_run_supervisor(settings, reload=reload))
    from watchbill.telemetry.logs import configure

    configure(settings.log_level, settings.log_format)
    found, reference = find_app(settings.app)
    options["node_name"] = supervisor.add_child_number(settings.node_name)
    options["health_port"] = supervisor.add_child_port(settings.health_port)
    settings = ctx.obj.load_settings(found, **options)
    address = ctx.obj.find_address(settings)
    found.use(replace(settings, database_url=address.url))
    status = found.ensure_usable()
    from watchbill.cli.worker_start import print_next_command, print_schedules, print_start

    node = found.make_node(once=once, scheduler=scheduler, take_over=take_over)
    print_start(found, reference, node.config, address, status)
    if not lines:
        raise typer.Exit(_run_node(node, Limits(max_jobs, max_memory)))
    print_schedules(found)
    print_next_command()
    printer = JobLines(found)
    printer.start()
    code = _run_node(node, Limits(max_jobs, max_memory))
    printer.close()
    raise typer.Exit(code)


def _run_for_all_cells(given: GlobalOptions, options: dict[str, Any], *, reload: bool) -> int:
    """Runs a group of processes for each cell."""
    cells = list_cells(given)
    settings = replace(given, cell=cells[0]).load_settings(**options)
    command = [sys.executable, "-m", "watchbill.cli", *_without_cell(sys.argv[1:])]
    watched = Path.cwd() if reload else None
    environments = [{"WATCHBILL_CELL": cell} for cell in cells for _ in range(settings.processes)]
    return supervisor.Supervisor(command, count=len(environments), environments=environments, watched=watched).run()


def _without_cell(words: list[str]) -> list[str]:
    """The command line without `--cell all`, which each child gets from its environment."""
    place = next((place for place, word in enumerate(words) if word == "--cell"), None)
    kept = words if place is None else words[:place] + words[place + 2 :]
    return [word for word in kept if word != "--cell=all"]


def _run_supervisor(settings: Settings, *, reload: bool) -> int:
    command = [sys.executable, "-m", "watchbill.cli", *sys.argv[1:]]
    watched = Path.cwd() if reload else None
    processes = supervisor.Supervisor(command, count=settings.processes, watched=watched)
    if settings.health_port is None or settings.processes == 1:  # a single process answers itself
        return processes.run()
    from watchbill.cli.processes_health import ProcessesHealth

    health = ProcessesHealth(settings.health_host, settings.health_port, settings.processes)
    health.start()
    try:
        return processes.run()
    finally:
        health.stop()


@dataclass
class Limits:
    """After how many jobs, or beyond how many MiB of memory, a worker process ends and its supervisor starts
    another."""

    jobs: int | None
    memory: int | None
    reached: bool = False

    def check(self, finished: int) -> bool:
        from watchbill.worker.processes import measure_peak_memory

        mebibytes = measure_peak_memory() // 2**20
        self.reached = bool((self.jobs and finished >= self.jobs) or (self.memory and mebibytes > self.memory))
        return self.reached


def _choose_exit_code(node: Node, limits: Limits) -> int:
    return supervisor.RECYCLED if limits.reached else node.exit_code


def _run_node(node: Node, limits: Limits) -> int:
    """Runs the node and returns the exit code. A SystemExit in an asyncio task ends the whole event loop; if a handler
    has started that task, this must not look like a normal end."""
    try:
        import uvloop
    except ImportError:
        run = asyncio.run
    else:
        run = uvloop.run
    # What a start makes lives until the end, and the garbage collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    try:
        run(_run_until_stopped(node, limits))
    except SystemExit:
        logger.critical("An asyncio task that a handler started has raised SystemExit; the worker ends", exc_info=True)
        return 1
    finally:
        for number in supervisor.list_stop_signals():
            signal.signal(number, signal.SIG_IGN)  # the node has ended; a late signal must not change the exit code
    return _choose_exit_code(node, limits)


async def _run_until_stopped(node: Node, limits: Limits) -> None:
    loop, signals, supervised = asyncio.get_running_loop(), 0, supervisor.is_child()

    def handle_signal(number: int) -> None:
        nonlocal signals
        signals += 1
        at_once = number == supervisor.AT_ONCE if supervised else signals > 1
        (node.stop if at_once else node.drain)()

    for number in supervisor.list_stop_signals():
        loop.add_signal_handler(number, handle_signal, number)
    watching = loop.create_task(_stop_at_limits(node, limits, supervisor.make_orphan_check()))
    code = 1
    try:
        await node.run()
        code = _choose_exit_code(node, limits)
    finally:
        watching.cancel()
        _end_process_later(code)
    if node.unstoppable_jobs:
        for name in node.unstoppable_jobs:
            logger.error("The handler of %s does not stop; ending the process without waiting for it", name)
        _end_process(code)


async def _stop_at_limits(node: Node, limits: Limits, is_orphaned: Callable[[], bool]) -> None:
    while True:
        await asyncio.sleep(0.5)
        if is_orphaned() or limits.check(node.finished):
            node.drain()


def _end_process_later(code: int) -> None:
    """Ends the process after a while, if it does not end by itself. Closing the event loop waits for asyncio tasks, and
    Python waits for threads. Both may wait for ever, if a handler has started a thread, or a task that ignores
    cancellation."""

    def end_if_still_alive() -> None:
        left = ", ".join(thread.name for thread in threading.enumerate() if not thread.daemon)
        message = "Handlers have left asyncio tasks or threads (%s) that do not end; ending the process without waiting"
        logger.error(message, left)
        _end_process(code)

    ending = threading.Timer(LEFTOVER_TIMEOUT_SECONDS, end_if_still_alive)
    ending.daemon = True
    ending.start()


def _end_process(code: int) -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
