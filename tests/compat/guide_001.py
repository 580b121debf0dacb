"""The program that JobSync's guide takes for granted: its `database` module, and the functions of the reader.

`Surroundings` runs a Python block of the guide as it stands, and then calls every function that the block defines. A
`Job(...)` of the guide gets the arguments that it leaves out.
"""

from __future__ import annotations

import inspect
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import flask
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from tests.compat.walk import Statement
from watchbill.compat import jobsync
from watchbill.compat.jobsync import Job

TABLES = """
CREATE TABLE tasks (
    task_id int PRIMARY KEY, date date DEFAULT CURRENT_DATE, status text DEFAULT 'pending', required_node text,
    requires_gpu boolean DEFAULT false);
CREATE TABLE task_metadata (task_id int, date date DEFAULT CURRENT_DATE, required_resource text);
CREATE TABLE results (task_id int UNIQUE, result text, completed_at timestamptz);
INSERT INTO tasks (task_id, required_node, requires_gpu)
SELECT n, CASE n WHEN 3 THEN 'worker-01, worker-02' END, n = 4 FROM generate_series(1, 9) n;
INSERT INTO task_metadata (task_id, required_resource) VALUES (5, 'gpu'), (6, 'high_memory');
"""
TASKS = list(range(1, 10))


def make_config(url: str, **coordination: Any) -> Any:
    """A config module as JobSync has it."""
    place = conninfo_to_dict(url)
    sql = SimpleNamespace(appname="sync_", host=place["host"], dbname=place["dbname"], user=place["user"])
    return SimpleNamespace(sync=SimpleNamespace(sql=sql, coordination=SimpleNamespace(**coordination)))


class Rows(list[dict[str, Any]]):
    def to_dict(self, _: str) -> list[dict[str, Any]]:
        return self


def make_database() -> ModuleType:
    """The guide's `database`: statements with their parameters one by one."""
    made = ModuleType("database")
    database: Any = made

    def select(cn: Any, statement: str, *parameters: Any) -> Rows:
        return Rows(cn.cursor(row_factory=dict_row).execute(statement.encode(), parameters).fetchall())

    def select_scalar(cn: Any, statement: str, *parameters: Any) -> Any:
        [row] = select(cn, statement, *parameters)
        [value] = row.values()
        return value

    database.select, database.select_scalar = select, select_scalar
    database.execute = lambda cn, statement, *parameters: cn.execute(statement.encode(), parameters)
    return made


class Setting(SimpleNamespace):
    """As libb has it: a name that is not there becomes another Setting."""

    def __getattr__(self, name: str) -> Setting:
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__[name] = made = Setting()
        return made

    @staticmethod
    def lock() -> None: ...

    unlock = lock


class Flask(flask.Flask):
    """Opens no port: `ask` sends requests to it."""

    def run(self, *_: object, **__: object) -> None: ...

    def ask(self, path: str) -> tuple[int, Any]:
        answer = self.test_client().get(path)
        return answer.status_code, answer.json


TOKENS = 20  # of every group here: a group that has locks keeps its number of tokens


class Surroundings:
    """`cn` is for functions that take one."""

    def __init__(self, url: str, cn: Any) -> None:
        self.cn = cn
        self.done: list[Any] = []  # ids of tasks, in the order in which they were processed
        self.seen: list[dict[str, Any]] = []  # one entry for each call of process_tasks
        self.during: Callable[[Job], object] = lambda _: None  # called by process_tasks
        self.config = make_config(url, total_tokens=TOKENS)
        self._stack = ExitStack()
        self._helper: Job | None = None
        self.names: dict[str, Any] = {"__name__": "guide", **self._reader_functions(), **self._reader_values()}

    def _reader_functions(self) -> dict[str, Any]:
        done = self.done.append
        lists = ("get_all_tasks", "get_task_list", "get_new_tasks", "get_tasks")
        heavy = ("get_todays_heavy_queries", "get_current_heavy_tasks", "get_special_tasks")
        return {
            **{name: lambda: TASKS for name in lists},
            **{name: lambda: TASKS[:2] for name in heavy},
            "query_gpu_requirements": lambda _: TASKS[2:4],
            "get_pending_tasks": lambda _=None: [task for task in TASKS if task not in self.done],
            **dict.fromkeys(("process_task", "process_gpu_task", "compute_result"), done),
            "compute_expensive_result": self.compute_expensive_result,
            "process_batch": self.done.extend,
            "save_result": lambda _task, _result: None,
            "is_completed": lambda task, _: task in self.done,
            "start_health_server": lambda job: self.seen.append({"healthy": job.am_i_healthy()}),
            **dict.fromkeys(("process_tasks", "test_task_processing"), self.process_tasks),
        }

    def _reader_values(self) -> dict[str, Any]:
        return {
            "config": self.config,
            "logger": logging.getLogger("guide"),
            "time": SimpleNamespace(sleep=lambda _: None),
            "need_complete_reset": True,
            "node": "worker-01",
            "reason": "special",
            "region": "east",
            "instance_id": 7,
        }

    def compute_expensive_result(self, task: Any) -> str:
        self.done.append(task)
        return "result"

    def process_tasks(self, job: Job) -> None:
        app = self.names.get("app")
        self.seen.append(
            {
                "node": job.node_name,
                "tokens": len(job.my_tokens),
                "healthy": job.am_i_healthy(),
                "locks": {lock["task_id"] for lock in job.list_locks()},
                "ready": app.ask("/health/ready") if app else None,
                "live": app.ask("/health/live") if app else None,
            }
        )
        self.during(job)

    def complete_job(self, *given: Any, **options: Any) -> Job:
        """`Job(...)` of the guide, with the arguments that it leaves out."""
        names = ("worker-01", "production", self.config) if given == (...,) else given
        return Job(*names, **options)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """The modules that the blocks import."""
        libb: Any = ModuleType("libb")
        libb.Setting = Setting
        made = {"jobsync": jobsync, "database": make_database(), "libb": libb}
        before = {name: sys.modules.get(name) for name in made}
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        sys.modules.update(made)
        try:
            with patch.object(flask, "Flask", Flask), self._stack:
                yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for name, module in before.items():
                sys.modules.pop(name)
                if module is not None:
                    sys.modules[name] = module

    def run(self, statement: Statement) -> list[str]:
        """Returns the names of the functions that were called, and `exit` if the block has ended the program."""
        self.done.clear()
        self.seen.clear()
        self.config.sync.__dict__["coordination"] = SimpleNamespace(total_tokens=TOKENS)
        place = f"<block {statement.block}>"
        known = dict(self.names)
        if "sync = Setting()" in statement.text:  # the block is the config module, and then a program that uses it
            self.names["config"] = _ConfigModule(self.names, self.config.sync.sql)
        if "Job(..." in statement.text:
            self.names["Job"] = self.complete_job
        called = []
        try:
            exec(compile(statement.text, place, "exec"), self.names)
        except SystemExit:
            called.append("exit")
        self.names["config"] = self.config
        made = [
            function
            for name, function in self.names.items()
            if isinstance(function, FunctionType) and function.__code__.co_filename == place
            and known.get(name) is not function
        ]  # fmt: skip
        for function in made:
            if function.__name__.startswith(("health_", "signal_")):  # process_tasks and the signal call these
                continue
            self.call(function)
            called.append(function.__name__)
        self.names["Job"] = Job
        return called

    def call(self, function: FunctionType) -> None:
        given = {"date": datetime.now(UTC), "config": self.config, "cn": self.cn, "task_id": 7}
        wanted = inspect.signature(function).parameters
        if "job" in wanted:
            given["job"] = self.helper
        function(**{name: given[name] for name in wanted})

    @property
    def helper(self) -> Job:
        """A Job for functions that take one. It has a site of its own, so that it can stay from block to block."""
        if self._helper is None:
            self._helper = self._stack.enter_context(Job("worker-09", "helpers", self.config))
        return self._helper


class _ConfigModule:
    """The names of the block as attributes, with the place of the database."""

    def __init__(self, names: dict[str, Any], sql: Any) -> None:
        self._names, self._sql = names, sql

    @property
    def sync(self) -> Any:
        found = self._names["sync"]
        found.sql = self._sql
        return found
