"""The table of all endpoints. The router, the rights, the OpenAPI document, docs/reference/http.md and the tests of
rights are made from it."""

from __future__ import annotations

from watchbill.dashboard.api import about, control, fleet, flow, jobs, operations, schedules, watch, work
from watchbill.dashboard.api.call import MOST_BATCH_BYTES, Endpoint
from watchbill.dashboard.api.shapes import Done, Empty

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
        body=Empty, errors=(404, 409), sql=("release",),
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
        errors=(404,), sql=("audit_list",),
    ),
    # Bulk operations
    Endpoint(
        "POST", "/operations", "operator", "Change all jobs that match, or preview that", operations.start,
        operations.Started, body=operations.NewOperation, statuses=(202, 200), errors=(409,),
        sql=("start_operation", "job_page"), takes_key=True,
    ),
    Endpoint(
        "GET", "/operations", "reader", "List bulk operations", operations.find, operations.Operations,
        query=operations.OperationQuery, sql=("bulk_operations",),
    ),
    Endpoint(
        "GET", "/operations/{number}", "reader", "Show a bulk operation", operations.show, operations.OperationItem,
        errors=(404,), sql=("bulk_operations",),
    ),
    Endpoint(
        "POST", "/operations/{number}/pause", "operator", "Pause a bulk operation", operations.pause,
        operations.OperationItem, body=Empty, errors=(404, 409), sql=("pause_operation",),
    ),
    Endpoint(
        "POST", "/operations/{number}/resume", "operator", "Go on with a bulk operation", operations.resume,
        operations.OperationItem, body=Empty, errors=(404, 409), sql=("resume_operation",),
    ),
    Endpoint(
        "POST", "/operations/{number}/cancel", "operator", "End a bulk operation", operations.cancel,
        operations.OperationItem, body=Empty, errors=(404, 409), sql=("cancel_operation",),
    ),
    # Queues, types, failures
    Endpoint(
        "GET", "/queues", "reader", "List queues with their figures", flow.list_queues, flow.Queues,
        sql=("_list_queue_figures",),
    ),
    Endpoint(
        "GET", "/queues/why", "reader", "Count why jobs do not run", flow.why, flow.Causes, query=flow.CauseQuery,
        sql=("why_jobs",),
    ),
    Endpoint(
        "GET", "/types", "reader", "List types with their figures", flow.list_types, flow.Types,
        sql=("figure_list", "node_types"),
    ),
    Endpoint(
        "GET", "/failures", "reader", "List groups of failures", flow.list_failures, flow.Failures,
        query=flow.FailureQuery, sql=("failure_list",),
    ),
    # Pauses and limits
    Endpoint("GET", "/pauses", "reader", "List what is paused", flow.list_pauses, flow.Pauses, sql=("pauses",)),
    Endpoint(
        "POST", "/pauses", "operator", "Pause a queue or a type", flow.pause, Done, body=flow.NewPause, sql=("pause",)
    ),
    Endpoint(
        "DELETE", "/pauses", "operator", "Resume a queue or a type", flow.resume, Done, query=flow.PauseQuery,
        sql=("resume",),
    ),
    Endpoint("GET", "/limits", "reader", "List limits", flow.list_limits, flow.Limits, sql=("limit_list",)),
    Endpoint(
        "PUT", "/limits/{name:path}", "operator", "Set a limit", flow.set_limit, flow.LimitItem, body=flow.LimitBody,
        sql=("set_limit",),
    ),
    Endpoint(
        "DELETE", "/limits/{name:path}", "operator", "Give a limit back to the code", flow.clear_limit, Done,
        sql=("clear_limit",),
    ),
    # Tenants
    Endpoint("GET", "/tenants", "reader", "List tenants", flow.list_tenants, flow.Tenants, sql=("tenant_list",)),
    Endpoint(
        "PUT", "/tenants/{name:path}", "admin", "Set the quotas of a tenant", flow.set_tenant, Done,
        body=flow.QuotaBody, sql=("set_tenant",),
    ),
    Endpoint(
        "DELETE", "/tenants/{name:path}", "admin", "Erase a tenant, with all it has", flow.erase_tenant,
        flow.ErasureItem, query=flow.EraseQuery, statuses=(200, 202), sql=("erase_tenant",),
    ),
    # Schedules
    Endpoint(
        "GET", "/schedules", "reader", "List schedules by name", schedules.find, schedules.Schedules,
        query=schedules.ScheduleQuery, sql=("schedule_list",),
    ),
    Endpoint(
        "POST", "/schedules", "producer", "Add a schedule", schedules.add, schedules.ScheduleItem,
        body=schedules.NewSchedule, statuses=(201,), errors=(409,), sql=("add_schedule_from",),
    ),
    Endpoint(
        "POST", "/schedules/explain", "reader", "Say what a pattern means", schedules.explain, schedules.Explained,
        body=schedules.Pattern,
    ),
    Endpoint(
        "GET", "/schedules/{number}", "reader", "Show a schedule", schedules.show, schedules.ScheduleItem,
        errors=(404,), sql=("schedule_by_name",),
    ),
    Endpoint(
        "PATCH", "/schedules/{number}", "producer", "Change a schedule", schedules.change, schedules.ScheduleItem,
        body=schedules.ScheduleChange, errors=(404, 409), sql=("update_schedule",),
    ),
    Endpoint(
        "DELETE", "/schedules/{number}", "producer", "Remove a schedule", schedules.remove, Done, errors=(404,),
        sql=("remove_schedule",),
    ),
    Endpoint(
        "POST", "/schedules/{number}/run", "producer", "Run a schedule now", schedules.run, schedules.Started,
        body=schedules.Run, statuses=(201,), errors=(404, 409), sql=("run_schedule",),
    ),
    Endpoint(
        "POST", "/schedules/{number}/enable", "producer", "Let a schedule fire", schedules.enable, Done, body=Empty,
        errors=(404, 409), sql=("enable_schedule",),
    ),
    Endpoint(
        "POST", "/schedules/{number}/disable", "producer", "Keep a schedule from firing", schedules.disable, Done,
        body=Empty, errors=(404, 409), sql=("disable_schedule",),
    ),
    Endpoint(
        "GET", "/schedules/{number}/slots", "reader", "List the slots of a schedule", schedules.list_slots,
        schedules.Slots, query=schedules.SlotQuery, errors=(404,), sql=("slot_list",),
    ),
    Endpoint(
        "GET", "/schedules/{number}/preview", "reader", "List the next slots of a schedule", schedules.preview,
        schedules.Instants, query=schedules.PreviewQuery, errors=(404,), sql=("preview_schedule",),
    ),
    Endpoint(
        "GET", "/schedules/{number}/why", "reader", "Say why a schedule fires or not", schedules.why,
        schedules.Reasons, errors=(404,), sql=("why_schedule",),
    ),
    # Nodes, groups, pins, locks
    Endpoint("GET", "/nodes", "reader", "List nodes", fleet.list_nodes, fleet.Nodes, query=fleet.NodeQuery,
             sql=("node",)),
    Endpoint(
        "POST", "/nodes/{epoch}/drain", "operator", "Let a node finish its jobs and leave", fleet.drain, Done,
        body=Empty, errors=(404,), sql=("drain",),
    ),
    Endpoint("GET", "/groups", "reader", "List token groups", fleet.list_groups, fleet.Groups, sql=("group_list",)),
    Endpoint(
        "POST", "/groups/rebalance", "operator", "Divide the tokens of a group again", fleet.rebalance, Done,
        body=fleet.OneGroup, errors=(404,), sql=("request_rebalance",),
    ),
    Endpoint(
        "GET", "/pins", "reader", "List the pins of a group", fleet.list_pins, fleet.Pins, query=fleet.PinQuery,
        sql=("pin_list",),
    ),
    Endpoint(
        "POST", "/pins", "operator", "Pin keys to nodes", fleet.pin, fleet.Pinned, body=fleet.NewPins,
        errors=(404,), sql=("pin",),
    ),
    Endpoint(
        "DELETE", "/pins", "operator", "Remove pins", fleet.clear_pins, fleet.Pinned, query=fleet.PinFilter,
        errors=(404,), sql=("clear_pins",),
    ),
    Endpoint("GET", "/locks", "reader", "List named locks", fleet.list_locks, fleet.Locks, query=fleet.LockQuery,
             sql=("lock",)),
    Endpoint(
        "POST", "/locks/release", "admin", "Release a lock from its holder", fleet.release_lock, Done,
        body=fleet.LockName, sql=("lock_release",),
    ),
    # Alerts, silences, audit
    Endpoint(
        "GET", "/alerts", "reader", "List alerts", control.list_alerts, control.Alerts, query=control.AlertQuery,
        sql=("alert_list",),
    ),
    Endpoint(
        "PUT", "/alert-rules", "operator", "Set the values of an alert rule", control.set_rule, Done,
        body=control.RuleBody, sql=("set_alert_rule",),
    ),
    Endpoint(
        "GET", "/silences", "reader", "List silences", control.list_silences, control.Silences, sql=("silence_list",)
    ),
    Endpoint(
        "POST", "/silences", "operator", "Keep alerts back", control.add_silence, control.Made,
        body=control.NewSilence, statuses=(201,), sql=("add_silence",),
    ),
    Endpoint(
        "DELETE", "/silences/{number}", "operator", "End a silence", control.end_silence, Done, errors=(404,),
        sql=("end_silence",),
    ),
    Endpoint(
        "GET", "/audit", "reader", "List what people did", control.list_audit, control.Audit,
        query=control.AuditQuery, sql=("audit_list",),
    ),
    # API keys
    Endpoint("GET", "/keys", "admin", "List API keys", control.list_keys, control.Keys, sql=("api_key_list",)),
    Endpoint(
        "POST", "/keys", "admin", "Make an API key", control.add_key, control.NewKey, body=control.NewKeyBody,
        statuses=(201,), errors=(409,), sql=("add_api_key",),
    ),
    Endpoint(
        "DELETE", "/keys/{name:path}", "admin", "Revoke an API key", control.revoke_key, Done, errors=(404,),
        sql=("revoke_api_key",),
    ),
    # Workers
    Endpoint(
        "POST", "/nodes", "worker", "Register a node", work.register, work.Node, body=work.NewNode, statuses=(201,),
        errors=(409,), sql=("register", "reclaim"),
    ),
    Endpoint(
        "POST", "/nodes/{epoch}/heartbeat", "worker", "Renew the lease of a node", work.beat, work.Stops,
        body=work.Beat, errors=(404, 410), sql=("heartbeat",),
    ),
    Endpoint(
        "POST", "/nodes/{epoch}/claim", "worker", "Take jobs, or wait for some", work.claim, work.Claimed,
        body=work.Claim, errors=(404, 409, 410), sql=("release_unknown", "promote", "_claim_for_api"),
    ),
    Endpoint(
        "POST", "/nodes/{epoch}/settle", "worker", "Say how runs have ended", work.settle, work.Settled,
        body=work.Endings, errors=(404, 410), sql=("settle", "unblock"),
    ),
    Endpoint(
        "DELETE", "/nodes/{epoch}", "worker", "Give all jobs back and leave", work.leave, work.Left, errors=(404,),
        sql=("leave",),
    ),
    # Series, figures for autoscalers, events
    Endpoint(
        "GET", "/series", "reader", "Show a metric over time", watch.show_series, watch.Series,
        query=watch.SeriesQuery, sql=("_list_endings", "sample_list"),
    ),
    Endpoint(
        "GET", "/scale", "reader", "Say how many nodes a queue wants", watch.show_scale, watch.Scale,
        query=watch.ScaleQuery, sql=("_list_queue_figures", "node"),
    ),
    Endpoint(
        "GET", "/events", "reader", "Send what happens, as server-sent events", watch.stream,
        query=watch.EventQuery, sql=("finished_jobs", "attempts", "alert_list", "nodes", "slots"),
        media_type="text/event-stream",
    ),
)  # fmt: skip
