"""The table of all endpoints. The router, the rights, the OpenAPI document, docs/reference/http.md and the tests of
rights are made from it."""

from __future__ import annotations

from watchbill.dashboard.api import about, jobs
from watchbill.dashboard.api.call import MOST_BATCH_BYTES, Endpoint

PREFIX = "/api/v1"

TABLE: tuple[Endpoint, ...] = (
    Endpoint("GET", "/", None, "What this is, and who you are", about.show, about.About),
    Endpoint("GET", "/openapi.json", None, "The OpenAPI document of this API", about.show_document),
    # Jobs
    Endpoint(
        "POST", "/jobs", "producer", "Enqueue a job", jobs.enqueue, jobs.EnqueuedJob, body=jobs.NewJobBody,
        statuses=(201, 200), errors=(409,), sql=("enqueue",), takes_key=True,
    ),
    Endpoint(
        "POST", "/jobs:batch", "producer", "Enqueue jobs, all or none", jobs.enqueue_many, jobs.EnqueuedJobs,
        body=jobs.NewJobs, statuses=(201,), errors=(409,), sql=("enqueue_many",), most_bytes=MOST_BATCH_BYTES,
        takes_lines=True,
    ),
    Endpoint("GET", "/jobs", "reader", "List jobs", jobs.find, jobs.Jobs, query=jobs.JobQuery, sql=("job_page",)),
    Endpoint(
        "GET", "/jobs/{id}", "reader", "Show a job, or wait for its end", jobs.show, jobs.JobAnswer,
        query=jobs.WaitQuery, errors=(404,), sql=("job_by_id", "_read_job_ending"),
    ),
    Endpoint(
        "PATCH", "/jobs/{id}", "operator", "Change a job that waits", jobs.change, jobs.State, body=jobs.Change,
        errors=(404, 409), sql=("_change_job", "reschedule"),
    ),
    Endpoint(
        "POST", "/jobs/{id}/cancel", "producer", "Cancel a job", jobs.cancel, jobs.State, body=jobs.Cancellation,
        errors=(404, 409), sql=("cancel",),
    ),
    Endpoint(
        "POST", "/jobs/{id}/retry", "producer", "Run a job again", jobs.retry, jobs.State, body=jobs.Retry,
        errors=(404, 409), sql=("reschedule",),
    ),
    Endpoint(
        "POST", "/jobs/{id}/copy", "producer", "Enqueue a job like this one", jobs.copy, jobs.EnqueuedJob,
        body=jobs.Copy, statuses=(201,), errors=(404, 409), sql=("job_by_id", "enqueue"),
    ),
    Endpoint(
        "POST", "/jobs/{id}/release", "operator", "Take a running job from its node", jobs.release, jobs.Released,
        body=jobs.Empty, errors=(404, 409), sql=("release",),
    ),
    Endpoint(
        "GET", "/jobs/{id}/attempts", "reader", "List the attempts of a job", jobs.list_attempts, jobs.Attempts,
        errors=(404,), sql=("job_attempts",),
    ),
    Endpoint(
        "GET", "/jobs/{id}/graph", "reader", "Show what a job waits for, and what waits for it", jobs.show_graph,
        jobs.Graph, errors=(404,), sql=("dependency_graph",),
    ),
    Endpoint(
        "GET", "/jobs/{id}/why", "reader", "Say why a job does not run", jobs.why, jobs.Reasons, errors=(404,),
        sql=("why_job",),
    ),
    Endpoint(
        "GET", "/jobs/{id}/audit", "reader", "List what people did to a job", jobs.list_audit, jobs.Audit,
        errors=(404,), sql=("audit",),
    ),
)  # fmt: skip
