"""Facades in Python: classes with the names, arguments, defaults and results of other systems, on Watchbill's engine.

jobforge.py  JobForgeClient and the worker, of JobForge
jobsync.py   Job, Task and CoordinationConfig, of JobSync
s3db.py      SchedulerPlugin, of s3db.js
seesaw.py    PgJobStore, of seesaw-job-postgres
naming.py    names in snake_case and camelCase

`docs/reference/compat.md` says what each of them does, replaces and leaves out.
"""
