SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

SET default_tablespace = '';

CREATE INDEX jobs_ready ON watchbill.jobs USING btree (queue, class, lane, priority DESC, run_at, id) WHERE (wait IS NULL);

CREATE FUNCTION watchbill._count_ready_entries_read() RETURNS bigint
    LANGUAGE sql
    RETURN pg_stat_get_xact_tuples_returned(('watchbill.jobs_ready'::regclass)::oid);

ALTER TABLE ONLY watchbill.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (id);

ALTER TABLE ONLY watchbill.beats
    ADD CONSTRAINT beats_pkey PRIMARY KEY (epoch);

ALTER TABLE ONLY watchbill.cancels
    ADD CONSTRAINT cancels_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY watchbill.candidates
    ADD CONSTRAINT candidates_pkey PRIMARY KEY (epoch, group_name);

ALTER TABLE ONLY watchbill.claims
    ADD CONSTRAINT claims_pkey PRIMARY KEY (fence);

ALTER TABLE ONLY watchbill.compiled_patterns
    ADD CONSTRAINT compiled_patterns_pkey PRIMARY KEY (id);

ALTER TABLE ONLY watchbill.declarations
    ADD CONSTRAINT declarations_pkey PRIMARY KEY (schedule_id, epoch);

ALTER TABLE ONLY watchbill.dependencies
    ADD CONSTRAINT dependencies_pkey PRIMARY KEY (parent, child);

ALTER TABLE ONLY watchbill.erasures
    ADD CONSTRAINT erasures_pkey PRIMARY KEY (tenant);

ALTER TABLE ONLY watchbill.facades
    ADD CONSTRAINT facades_pkey PRIMARY KEY (name);

ALTER TABLE ONLY watchbill.flow_declarations
    ADD CONSTRAINT flow_declarations_pkey PRIMARY KEY (kind, name, epoch);

ALTER TABLE ONLY watchbill.holds
    ADD CONSTRAINT holds_pkey PRIMARY KEY (key, job_id);

ALTER TABLE ONLY watchbill.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (tenant, type, key);

ALTER TABLE ONLY watchbill.installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (id);

ALTER TABLE ONLY watchbill.item_claims
    ADD CONSTRAINT item_claims_pkey PRIMARY KEY (token_group, scope, key);

ALTER TABLE ONLY watchbill.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY watchbill.label_sets
    ADD CONSTRAINT label_sets_pkey PRIMARY KEY (lane);

ALTER TABLE ONLY watchbill.limit_states
    ADD CONSTRAINT limit_states_pkey PRIMARY KEY (key);

ALTER TABLE ONLY watchbill.limits
    ADD CONSTRAINT limits_pkey PRIMARY KEY (name);

ALTER TABLE ONLY watchbill.locks
    ADD CONSTRAINT locks_pkey PRIMARY KEY (name);

ALTER TABLE ONLY watchbill.members
    ADD CONSTRAINT members_pkey PRIMARY KEY (token_group, epoch);

ALTER TABLE ONLY watchbill.node_types
    ADD CONSTRAINT node_types_pkey PRIMARY KEY (epoch, type);

ALTER TABLE ONLY watchbill.nodes
    ADD CONSTRAINT nodes_pkey PRIMARY KEY (epoch);

ALTER TABLE ONLY watchbill.pauses
    ADD CONSTRAINT pauses_queue_type_key UNIQUE NULLS NOT DISTINCT (queue, type);

ALTER TABLE ONLY watchbill.pins
    ADD CONSTRAINT pins_pkey PRIMARY KEY (token_group, key, rank);

ALTER TABLE ONLY watchbill.policies
    ADD CONSTRAINT policies_pkey PRIMARY KEY (id);

ALTER TABLE ONLY watchbill.pruned_slot_counts
    ADD CONSTRAINT pruned_slot_counts_pkey PRIMARY KEY (schedule_id);

ALTER TABLE ONLY watchbill.queues
    ADD CONSTRAINT queues_pkey PRIMARY KEY (name);

ALTER TABLE ONLY watchbill.quota_changes
    ADD CONSTRAINT quota_changes_pkey PRIMARY KEY (tenant, by, n);

ALTER TABLE ONLY watchbill.quota_seconds
    ADD CONSTRAINT quota_seconds_pkey PRIMARY KEY (tenant, second);

ALTER TABLE ONLY watchbill.quota_usage
    ADD CONSTRAINT quota_usage_pkey PRIMARY KEY (tenant);

ALTER TABLE ONLY watchbill.rebalances
    ADD CONSTRAINT rebalances_pkey PRIMARY KEY (id);

ALTER TABLE ONLY watchbill.runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY watchbill.schedules
    ADD CONSTRAINT schedules_pkey PRIMARY KEY (id);

ALTER TABLE ONLY watchbill.schedules
    ADD CONSTRAINT schedules_tenant_name_key UNIQUE (tenant, name);

ALTER TABLE ONLY watchbill.schema_version
    ADD CONSTRAINT schema_version_pkey PRIMARY KEY (version);

ALTER TABLE ONLY watchbill.shares
    ADD CONSTRAINT shares_pkey PRIMARY KEY (queue, lane);

ALTER TABLE ONLY watchbill.slots
    ADD CONSTRAINT slots_pkey PRIMARY KEY (schedule_id, slot, kind);

ALTER TABLE ONLY watchbill.slots_202401
    ADD CONSTRAINT slots_202401_pkey PRIMARY KEY (schedule_id, slot, kind);

ALTER TABLE ONLY watchbill.slots_202402
    ADD CONSTRAINT slots_202402_pkey PRIMARY KEY (schedule_id, slot, kind);

ALTER TABLE ONLY watchbill.slots_202403
    ADD CONSTRAINT slots_202403_pkey PRIMARY KEY (schedule_id, slot, kind);

ALTER TABLE ONLY watchbill.slots_202611
    ADD CONSTRAINT slots_202611_pkey PRIMARY KEY (schedule_id, slot, kind);

ALTER TABLE ONLY watchbill.slots_202612
    ADD CONSTRAINT slots_202612_pkey PRIMARY KEY (schedule_id, slot, kind);

ALTER TABLE ONLY watchbill.slots_202701
    ADD CONSTRAINT slots_202701_pkey PRIMARY KEY (schedule_id, slot, kind);

ALTER TABLE ONLY watchbill.slots_default
    ADD CONSTRAINT slots_default_pkey PRIMARY KEY (schedule_id, slot, kind);

ALTER TABLE ONLY watchbill.tenant_roles
    ADD CONSTRAINT tenant_roles_pkey PRIMARY KEY (role, tenant);

ALTER TABLE ONLY watchbill.tenants
    ADD CONSTRAINT tenants_pkey PRIMARY KEY (tenant);

ALTER TABLE ONLY watchbill.timers
    ADD CONSTRAINT timers_pkey PRIMARY KEY (schedule_id);

ALTER TABLE ONLY watchbill.token_groups
    ADD CONSTRAINT token_groups_pkey PRIMARY KEY (name);

ALTER TABLE ONLY watchbill.tokens
    ADD CONSTRAINT tokens_pkey PRIMARY KEY (token_group, token);

ALTER TABLE ONLY watchbill.uniques
    ADD CONSTRAINT uniques_pkey PRIMARY KEY (tenant, type, key);

ALTER TABLE ONLY watchbill.unsupported_types
    ADD CONSTRAINT unsupported_types_pkey PRIMARY KEY (type, version);

ALTER TABLE ONLY watchbill.zones
    ADD CONSTRAINT zones_name_key UNIQUE (name);

ALTER TABLE ONLY watchbill.zones
    ADD CONSTRAINT zones_pkey PRIMARY KEY (number);

CREATE INDEX attempts_ended_at ON ONLY watchbill.attempts USING brin (ended_at);

CREATE INDEX attempts_20240113_ended_at_idx ON watchbill.attempts_20240113 USING brin (ended_at);

CREATE INDEX attempts_job_id ON ONLY watchbill.attempts USING btree (job_id, run);

CREATE INDEX attempts_20240113_job_id_run_idx ON watchbill.attempts_20240113 USING btree (job_id, run);

CREATE INDEX attempts_20240114_ended_at_idx ON watchbill.attempts_20240114 USING brin (ended_at);

CREATE INDEX attempts_20240114_job_id_run_idx ON watchbill.attempts_20240114 USING btree (job_id, run);

CREATE INDEX attempts_20240115_ended_at_idx ON watchbill.attempts_20240115 USING brin (ended_at);

CREATE INDEX attempts_20240115_job_id_run_idx ON watchbill.attempts_20240115 USING btree (job_id, run);

CREATE INDEX attempts_20240116_ended_at_idx ON watchbill.attempts_20240116 USING brin (ended_at);

CREATE INDEX attempts_20240116_job_id_run_idx ON watchbill.attempts_20240116 USING btree (job_id, run);

CREATE INDEX attempts_20240117_ended_at_idx ON watchbill.attempts_20240117 USING brin (ended_at);

CREATE INDEX attempts_20240117_job_id_run_idx ON watchbill.attempts_20240117 USING btree (job_id, run);

CREATE INDEX attempts_20261118_ended_at_idx ON watchbill.attempts_20261118 USING brin (ended_at);

CREATE INDEX attempts_20261118_job_id_run_idx ON watchbill.attempts_20261118 USING btree (job_id, run);

CREATE INDEX attempts_20261119_ended_at_idx ON watchbill.attempts_20261119 USING brin (ended_at);

CREATE INDEX attempts_20261119_job_id_run_idx ON watchbill.attempts_20261119 USING btree (job_id, run);

CREATE INDEX attempts_20261120_ended_at_idx ON watchbill.attempts_20261120 USING brin (ended_at);

CREATE INDEX attempts_20261120_job_id_run_idx ON watchbill.attempts_20261120 USING btree (job_id, run);

CREATE INDEX attempts_20261121_ended_at_idx ON watchbill.attempts_20261121 USING brin (ended_at);

CREATE INDEX attempts_20261121_job_id_run_idx ON watchbill.attempts_20261121 USING btree (job_id, run);

CREATE INDEX attempts_20261122_ended_at_idx ON watchbill.attempts_20261122 USING brin (ended_at);

CREATE INDEX attempts_20261122_job_id_run_idx ON watchbill.attempts_20261122 USING btree (job_id, run);

CREATE INDEX attempts_20261123_ended_at_idx ON watchbill.attempts_20261123 USING brin (ended_at);

CREATE INDEX attempts_20261123_job_id_run_idx ON watchbill.attempts_20261123 USING btree (job_id, run);

CREATE INDEX attempts_20261124_ended_at_idx ON watchbill.attempts_20261124 USING brin (ended_at);

CREATE INDEX attempts_20261124_job_id_run_idx ON watchbill.attempts_20261124 USING btree (job_id, run);

CREATE INDEX attempts_20261125_ended_at_idx ON watchbill.attempts_20261125 USING brin (ended_at);

CREATE INDEX attempts_20261125_job_id_run_idx ON watchbill.attempts_20261125 USING btree (job_id, run);

CREATE INDEX attempts_default_ended_at_idx ON watchbill.attempts_default USING brin (ended_at);

CREATE INDEX attempts_default_job_id_run_idx ON watchbill.attempts_default USING btree (job_id, run);

CREATE INDEX audit_at ON watchbill.audit USING btree (at);

CREATE INDEX cancels_epoch ON watchbill.cancels USING btree (epoch);

CREATE INDEX candidates_group ON watchbill.candidates USING btree (group_name, epoch);

CREATE INDEX claims_epoch ON watchbill.claims USING btree (epoch);

CREATE INDEX compiled_patterns_content ON watchbill.compiled_patterns USING btree (pattern, tz, dst, anchor);

CREATE INDEX declarations_epoch ON watchbill.declarations USING btree (epoch);

CREATE INDEX dependencies_child ON watchbill.dependencies USING btree (child, place);

CREATE INDEX dependency_checks_at ON watchbill.dependency_checks USING btree (at);

CREATE INDEX dependency_checks_id ON watchbill.dependency_checks USING btree (id);

CREATE INDEX finished_jobs_finished_at ON ONLY watchbill.finished_jobs USING brin (finished_at);

CREATE INDEX finished_jobs_id ON ONLY watchbill.finished_jobs USING btree (id);

CREATE INDEX finished_otherwise_finished_at_idx ON ONLY watchbill.finished_otherwise USING brin (finished_at);

CREATE INDEX finished_otherwise_20240113_finished_at_idx ON watchbill.finished_otherwise_20240113 USING brin (finished_at);

CREATE INDEX finished_otherwise_id_idx ON ONLY watchbill.finished_otherwise USING btree (id);

CREATE INDEX finished_otherwise_20240113_id_idx ON watchbill.finished_otherwise_20240113 USING btree (id);

CREATE INDEX finished_otherwise_20240114_finished_at_idx ON watchbill.finished_otherwise_20240114 USING brin (finished_at);

CREATE INDEX finished_otherwise_20240114_id_idx ON watchbill.finished_otherwise_20240114 USING btree (id);

CREATE INDEX finished_otherwise_20240115_finished_at_idx ON watchbill.finished_otherwise_20240115 USING brin (finished_at);

CREATE INDEX finished_otherwise_20240115_id_idx ON watchbill.finished_otherwise_20240115 USING btree (id);

CREATE INDEX finished_otherwise_20240116_finished_at_idx ON watchbill.finished_otherwise_20240116 USING brin (finished_at);

CREATE INDEX finished_otherwise_20240116_id_idx ON watchbill.finished_otherwise_20240116 USING btree (id);

CREATE INDEX finished_otherwise_20240117_finished_at_idx ON watchbill.finished_otherwise_20240117 USING brin (finished_at);

CREATE INDEX finished_otherwise_20240117_id_idx ON watchbill.finished_otherwise_20240117 USING btree (id);

CREATE INDEX finished_otherwise_20261118_finished_at_idx ON watchbill.finished_otherwise_20261118 USING brin (finished_at);

CREATE INDEX finished_otherwise_20261118_id_idx ON watchbill.finished_otherwise_20261118 USING btree (id);

CREATE INDEX finished_otherwise_20261119_finished_at_idx ON watchbill.finished_otherwise_20261119 USING brin (finished_at);

CREATE INDEX finished_otherwise_20261119_id_idx ON watchbill.finished_otherwise_20261119 USING btree (id);

CREATE INDEX finished_otherwise_20261120_finished_at_idx ON watchbill.finished_otherwise_20261120 USING brin (finished_at);

CREATE INDEX finished_otherwise_20261120_id_idx ON watchbill.finished_otherwise_20261120 USING btree (id);

CREATE INDEX finished_otherwise_20261121_finished_at_idx ON watchbill.finished_otherwise_20261121 USING brin (finished_at);

CREATE INDEX finished_otherwise_20261121_id_idx ON watchbill.finished_otherwise_20261121 USING btree (id);

CREATE INDEX finished_otherwise_20261122_finished_at_idx ON watchbill.finished_otherwise_20261122 USING brin (finished_at);

CREATE INDEX finished_otherwise_20261122_id_idx ON watchbill.finished_otherwise_20261122 USING btree (id);

CREATE INDEX finished_otherwise_20261123_finished_at_idx ON watchbill.finished_otherwise_20261123 USING brin (finished_at);

CREATE INDEX finished_otherwise_20261123_id_idx ON watchbill.finished_otherwise_20261123 USING btree (id);

CREATE INDEX finished_otherwise_20261124_finished_at_idx ON watchbill.finished_otherwise_20261124 USING brin (finished_at);

CREATE INDEX finished_otherwise_20261124_id_idx ON watchbill.finished_otherwise_20261124 USING btree (id);

CREATE INDEX finished_otherwise_20261125_finished_at_idx ON watchbill.finished_otherwise_20261125 USING brin (finished_at);

CREATE INDEX finished_otherwise_20261125_id_idx ON watchbill.finished_otherwise_20261125 USING btree (id);

CREATE INDEX finished_otherwise_default_finished_at_idx ON watchbill.finished_otherwise_default USING brin (finished_at);

CREATE INDEX finished_otherwise_default_id_idx ON watchbill.finished_otherwise_default USING btree (id);

CREATE INDEX finished_succeeded_finished_at_idx ON ONLY watchbill.finished_succeeded USING brin (finished_at);

CREATE INDEX finished_succeeded_20240113_finished_at_idx ON watchbill.finished_succeeded_20240113 USING brin (finished_at);

CREATE INDEX finished_succeeded_id_idx ON ONLY watchbill.finished_succeeded USING btree (id);

CREATE INDEX finished_succeeded_20240113_id_idx ON watchbill.finished_succeeded_20240113 USING btree (id);

CREATE INDEX finished_succeeded_20240114_finished_at_idx ON watchbill.finished_succeeded_20240114 USING brin (finished_at);

CREATE INDEX finished_succeeded_20240114_id_idx ON watchbill.finished_succeeded_20240114 USING btree (id);

CREATE INDEX finished_succeeded_20240115_finished_at_idx ON watchbill.finished_succeeded_20240115 USING brin (finished_at);

CREATE INDEX finished_succeeded_20240115_id_idx ON watchbill.finished_succeeded_20240115 USING btree (id);

CREATE INDEX finished_succeeded_20240116_finished_at_idx ON watchbill.finished_succeeded_20240116 USING brin (finished_at);

CREATE INDEX finished_succeeded_20240116_id_idx ON watchbill.finished_succeeded_20240116 USING btree (id);

CREATE INDEX finished_succeeded_20240117_finished_at_idx ON watchbill.finished_succeeded_20240117 USING brin (finished_at);

CREATE INDEX finished_succeeded_20240117_id_idx ON watchbill.finished_succeeded_20240117 USING btree (id);

CREATE INDEX finished_succeeded_20261118_finished_at_idx ON watchbill.finished_succeeded_20261118 USING brin (finished_at);

CREATE INDEX finished_succeeded_20261118_id_idx ON watchbill.finished_succeeded_20261118 USING btree (id);

CREATE INDEX finished_succeeded_20261119_finished_at_idx ON watchbill.finished_succeeded_20261119 USING brin (finished_at);

CREATE INDEX finished_succeeded_20261119_id_idx ON watchbill.finished_succeeded_20261119 USING btree (id);

CREATE INDEX finished_succeeded_20261120_finished_at_idx ON watchbill.finished_succeeded_20261120 USING brin (finished_at);

CREATE INDEX finished_succeeded_20261120_id_idx ON watchbill.finished_succeeded_20261120 USING btree (id);

CREATE INDEX finished_succeeded_20261121_finished_at_idx ON watchbill.finished_succeeded_20261121 USING brin (finished_at);

CREATE INDEX finished_succeeded_20261121_id_idx ON watchbill.finished_succeeded_20261121 USING btree (id);

CREATE INDEX finished_succeeded_20261122_finished_at_idx ON watchbill.finished_succeeded_20261122 USING brin (finished_at);

CREATE INDEX finished_succeeded_20261122_id_idx ON watchbill.finished_succeeded_20261122 USING btree (id);

CREATE INDEX finished_succeeded_20261123_finished_at_idx ON watchbill.finished_succeeded_20261123 USING brin (finished_at);

CREATE INDEX finished_succeeded_20261123_id_idx ON watchbill.finished_succeeded_20261123 USING btree (id);

CREATE INDEX finished_succeeded_20261124_finished_at_idx ON watchbill.finished_succeeded_20261124 USING brin (finished_at);

CREATE INDEX finished_succeeded_20261124_id_idx ON watchbill.finished_succeeded_20261124 USING btree (id);

CREATE INDEX finished_succeeded_20261125_finished_at_idx ON watchbill.finished_succeeded_20261125 USING brin (finished_at);

CREATE INDEX finished_succeeded_20261125_id_idx ON watchbill.finished_succeeded_20261125 USING btree (id);

CREATE INDEX finished_succeeded_default_finished_at_idx ON watchbill.finished_succeeded_default USING brin (finished_at);

CREATE INDEX finished_succeeded_default_id_idx ON watchbill.finished_succeeded_default USING btree (id);

CREATE INDEX flow_declarations_epoch ON watchbill.flow_declarations USING btree (epoch);

CREATE INDEX idempotency_expires_at ON watchbill.idempotency USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX idempotency_job_id ON watchbill.idempotency USING btree (job_id);

CREATE UNIQUE INDEX installation_is_one_row ON watchbill.installation USING btree ((true));

CREATE INDEX item_claims_ended_at ON watchbill.item_claims USING btree (ended_at) WHERE (ended_at IS NOT NULL);

CREATE INDEX item_claims_held ON watchbill.item_claims USING btree (token_group, epoch, token) WHERE (state = 'held'::text);

CREATE INDEX jobs_due ON watchbill.jobs USING btree (run_at) WHERE (wait = 'delayed'::text);

CREATE INDEX jobs_failed ON watchbill.jobs USING btree (id) WHERE failed;

CREATE INDEX jobs_ordered ON watchbill.jobs USING btree (order_key, seq) WHERE (order_key IS NOT NULL);

CREATE INDEX jobs_waiting ON watchbill.jobs USING btree (wait, wait_key, lane, priority DESC, run_at, id) WHERE (wait_key IS NOT NULL);

CREATE UNIQUE INDEX label_sets_labels ON watchbill.label_sets USING btree (labels);

CREATE INDEX limit_states_next_at ON watchbill.limit_states USING btree (next_at) WHERE (next_at IS NOT NULL);

CREATE INDEX locks_epoch ON watchbill.locks USING btree (epoch) WHERE (epoch IS NOT NULL);

CREATE INDEX members_epoch ON watchbill.members USING btree (epoch);

CREATE INDEX node_types_type ON watchbill.node_types USING btree (type);

CREATE INDEX nodes_ended ON watchbill.nodes USING btree (ended_at) WHERE (ended_at IS NOT NULL);

CREATE INDEX nodes_instance ON watchbill.nodes USING btree (instance);

CREATE UNIQUE INDEX nodes_living_name ON watchbill.nodes USING btree (name) WHERE (state = ANY (ARRAY['active'::text, 'draining'::text]));

CREATE INDEX pins_expires_at ON watchbill.pins USING btree (token_group, expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX pins_settling ON watchbill.pins USING btree (token_group) WHERE (settling IS NOT NULL);

CREATE INDEX pins_token ON watchbill.pins USING btree (token_group, token);

CREATE INDEX policies_definition ON watchbill.policies USING hash (definition);

CREATE INDEX rebalances_at ON watchbill.rebalances USING btree (token_group, at);

CREATE INDEX runs_epoch ON watchbill.runs USING btree (epoch);

CREATE INDEX schedules_name ON watchbill.schedules USING btree (name, tenant);

CREATE INDEX schedules_owner ON watchbill.schedules USING btree (owner) WHERE (owner IS NOT NULL);

CREATE UNIQUE INDEX schema_functions_is_one_row ON watchbill.schema_functions USING btree ((true));

CREATE INDEX slots_due_by ON ONLY watchbill.slots USING btree (due_by) WHERE ((due_by IS NOT NULL) AND (overdue_at IS NULL) AND (finished_at IS NULL));

CREATE INDEX slots_202401_due_by_idx ON watchbill.slots_202401 USING btree (due_by) WHERE ((due_by IS NOT NULL) AND (overdue_at IS NULL) AND (finished_at IS NULL));

CREATE INDEX slots_open ON ONLY watchbill.slots USING btree (schedule_id) WHERE ((outcome IS NULL) AND (job_id IS NOT NULL));

CREATE INDEX slots_202401_schedule_id_idx ON watchbill.slots_202401 USING btree (schedule_id) WHERE ((outcome IS NULL) AND (job_id IS NOT NULL));

CREATE INDEX slots_not_succeeded ON ONLY watchbill.slots USING btree (schedule_id, slot) WHERE (outcome <> 'succeeded'::text);

CREATE INDEX slots_202401_schedule_id_slot_idx ON watchbill.slots_202401 USING btree (schedule_id, slot) WHERE (outcome <> 'succeeded'::text);

CREATE INDEX slots_overdue ON ONLY watchbill.slots USING btree (schedule_id, slot) WHERE ((overdue_at IS NOT NULL) AND (finished_at IS NULL));

CREATE INDEX slots_202401_schedule_id_slot_idx1 ON watchbill.slots_202401 USING btree (schedule_id, slot) WHERE ((overdue_at IS NOT NULL) AND (finished_at IS NULL));

CREATE INDEX slots_202402_due_by_idx ON watchbill.slots_202402 USING btree (due_by) WHERE ((due_by IS NOT NULL) AND (overdue_at IS NULL) AND (finished_at IS NULL));

CREATE INDEX slots_202402_schedule_id_idx ON watchbill.slots_202402 USING btree (schedule_id) WHERE ((outcome IS NULL) AND (job_id IS NOT NULL));

CREATE INDEX slots_202402_schedule_id_slot_idx ON watchbill.slots_202402 USING btree (schedule_id, slot) WHERE (outcome <> 'succeeded'::text);

CREATE INDEX slots_202402_schedule_id_slot_idx1 ON watchbill.slots_202402 USING btree (schedule_id, slot) WHERE ((overdue_at IS NOT NULL) AND (finished_at IS NULL));

CREATE INDEX slots_202403_due_by_idx ON watchbill.slots_202403 USING btree (due_by) WHERE ((due_by IS NOT NULL) AND (overdue_at IS NULL) AND (finished_at IS NULL));

CREATE INDEX slots_202403_schedule_id_idx ON watchbill.slots_202403 USING btree (schedule_id) WHERE ((outcome IS NULL) AND (job_id IS NOT NULL));

CREATE INDEX slots_202403_schedule_id_slot_idx ON watchbill.slots_202403 USING btree (schedule_id, slot) WHERE (outcome <> 'succeeded'::text);

CREATE INDEX slots_202403_schedule_id_slot_idx1 ON watchbill.slots_202403 USING btree (schedule_id, slot) WHERE ((overdue_at IS NOT NULL) AND (finished_at IS NULL));

CREATE INDEX slots_202611_due_by_idx ON watchbill.slots_202611 USING btree (due_by) WHERE ((due_by IS NOT NULL) AND (overdue_at IS NULL) AND (finished_at IS NULL));

CREATE INDEX slots_202611_schedule_id_idx ON watchbill.slots_202611 USING btree (schedule_id) WHERE ((outcome IS NULL) AND (job_id IS NOT NULL));

CREATE INDEX slots_202611_schedule_id_slot_idx ON watchbill.slots_202611 USING btree (schedule_id, slot) WHERE (outcome <> 'succeeded'::text);

CREATE INDEX slots_202611_schedule_id_slot_idx1 ON watchbill.slots_202611 USING btree (schedule_id, slot) WHERE ((overdue_at IS NOT NULL) AND (finished_at IS NULL));

CREATE INDEX slots_202612_due_by_idx ON watchbill.slots_202612 USING btree (due_by) WHERE ((due_by IS NOT NULL) AND (overdue_at IS NULL) AND (finished_at IS NULL));

CREATE INDEX slots_202612_schedule_id_idx ON watchbill.slots_202612 USING btree (schedule_id) WHERE ((outcome IS NULL) AND (job_id IS NOT NULL));

CREATE INDEX slots_202612_schedule_id_slot_idx ON watchbill.slots_202612 USING btree (schedule_id, slot) WHERE (outcome <> 'succeeded'::text);

CREATE INDEX slots_202612_schedule_id_slot_idx1 ON watchbill.slots_202612 USING btree (schedule_id, slot) WHERE ((overdue_at IS NOT NULL) AND (finished_at IS NULL));

CREATE INDEX slots_202701_due_by_idx ON watchbill.slots_202701 USING btree (due_by) WHERE ((due_by IS NOT NULL) AND (overdue_at IS NULL) AND (finished_at IS NULL));

CREATE INDEX slots_202701_schedule_id_idx ON watchbill.slots_202701 USING btree (schedule_id) WHERE ((outcome IS NULL) AND (job_id IS NOT NULL));

CREATE INDEX slots_202701_schedule_id_slot_idx ON watchbill.slots_202701 USING btree (schedule_id, slot) WHERE (outcome <> 'succeeded'::text);

CREATE INDEX slots_202701_schedule_id_slot_idx1 ON watchbill.slots_202701 USING btree (schedule_id, slot) WHERE ((overdue_at IS NOT NULL) AND (finished_at IS NULL));

CREATE INDEX slots_default_due_by_idx ON watchbill.slots_default USING btree (due_by) WHERE ((due_by IS NOT NULL) AND (overdue_at IS NULL) AND (finished_at IS NULL));

CREATE INDEX slots_default_schedule_id_idx ON watchbill.slots_default USING btree (schedule_id) WHERE ((outcome IS NULL) AND (job_id IS NOT NULL));

CREATE INDEX slots_default_schedule_id_slot_idx ON watchbill.slots_default USING btree (schedule_id, slot) WHERE (outcome <> 'succeeded'::text);

CREATE INDEX slots_default_schedule_id_slot_idx1 ON watchbill.slots_default USING btree (schedule_id, slot) WHERE ((overdue_at IS NOT NULL) AND (finished_at IS NULL));

CREATE INDEX timers_held ON watchbill.timers USING btree (schedule_id) WHERE (held_slot IS NOT NULL);

CREATE INDEX timers_next_run ON watchbill.timers USING btree (next_run) WHERE (next_run IS NOT NULL);

CREATE INDEX tokens_moving ON watchbill.tokens USING btree (token_group, epoch, token) WHERE (next IS NOT NULL);

CREATE INDEX tokens_owner ON watchbill.tokens USING btree (token_group, epoch, token) WHERE (next IS NULL);

ALTER INDEX watchbill.attempts_ended_at ATTACH PARTITION watchbill.attempts_20240113_ended_at_idx;

ALTER INDEX watchbill.attempts_job_id ATTACH PARTITION watchbill.attempts_20240113_job_id_run_idx;

ALTER INDEX watchbill.attempts_ended_at ATTACH PARTITION watchbill.attempts_20240114_ended_at_idx;

ALTER INDEX watchbill.attempts_job_id ATTACH PARTITION watchbill.attempts_20240114_job_id_run_idx;

ALTER INDEX watchbill.attempts_ended_at ATTACH PARTITION watchbill.attempts_20240115_ended_at_idx;

ALTER INDEX watchbill.attempts_job_id ATTACH PARTITION watchbill.attempts_20240115_job_id_run_idx;

ALTER INDEX watchbill.attempts_ended_at ATTACH PARTITION watchbill.attempts_20240116_ended_at_idx;

ALTER INDEX watchbill.attempts_job_id ATTACH PARTITION watchbill.attempts_20240116_job_id_run_idx;

ALTER INDEX watchbill.attempts_ended_at ATTACH PARTITION watchbill.attempts_20240117_ended_at_idx;

ALTER INDEX watchbill.attempts_job_id ATTACH PARTITION watchbill.attempts_20240117_job_id_run_idx;

ALTER INDEX watchbill.attempts_ended_at ATTACH PARTITION watchbill.attempts_20261118_ended_at_idx;

ALTER INDEX watchbill.attempts_job_id ATTACH PARTITION watchbill.attempts_20261118_job_id_run_idx;

ALTER INDEX watchbill.attempts_ended_at ATTACH PARTITION watchbill.attempts_20261119_ended_at_idx;

ALTER INDEX watchbill.attempts_job_id ATTACH PARTITION watchbill.attempts_20261119_job_id_run_idx;

ALTER INDEX watchbill.attempts_ended_at ATTACH PARTITION watchbill.attempts_20261120_ended_at_idx;

ALTER INDEX watchbill.attempts_job_id ATTACH PARTITION watchbill.attempts_20261120_job_id_run_idx;

ALTER INDEX watchbill.attempts_ended_at ATTACH PARTITION watchbill.attempts_20261121_ended_at_idx;

ALTER INDEX watchbill.attempts_job_id ATTACH PARTITION watchbill.attempts_20261121_job_id_run_idx;

ALTER INDEX watchbill.attempts_ended_at ATTACH PARTITION watchbill.attempts_20261122_ended_at_idx;

ALTER INDEX watchbill.attempts_job_id ATTACH PARTITION watchbill.attempts_20261122_job_id_run_idx;

ALTER INDEX watchbill.attempts_ended_at ATTACH PARTITION watchbill.attempts_20261123_ended_at_idx;

ALTER INDEX watchbill.attempts_job_id ATTACH PARTITION watchbill.attempts_20261123_job_id_run_idx;

ALTER INDEX watchbill.attempts_ended_at ATTACH PARTITION watchbill.attempts_20261124_ended_at_idx;

ALTER INDEX watchbill.attempts_job_id ATTACH PARTITION watchbill.attempts_20261124_job_id_run_idx;

ALTER INDEX watchbill.attempts_ended_at ATTACH PARTITION watchbill.attempts_20261125_ended_at_idx;

ALTER INDEX watchbill.attempts_job_id ATTACH PARTITION watchbill.attempts_20261125_job_id_run_idx;

ALTER INDEX watchbill.attempts_ended_at ATTACH PARTITION watchbill.attempts_default_ended_at_idx;

ALTER INDEX watchbill.attempts_job_id ATTACH PARTITION watchbill.attempts_default_job_id_run_idx;

ALTER INDEX watchbill.finished_otherwise_finished_at_idx ATTACH PARTITION watchbill.finished_otherwise_20240113_finished_at_idx;

ALTER INDEX watchbill.finished_otherwise_id_idx ATTACH PARTITION watchbill.finished_otherwise_20240113_id_idx;

ALTER INDEX watchbill.finished_otherwise_finished_at_idx ATTACH PARTITION watchbill.finished_otherwise_20240114_finished_at_idx;

ALTER INDEX watchbill.finished_otherwise_id_idx ATTACH PARTITION watchbill.finished_otherwise_20240114_id_idx;

ALTER INDEX watchbill.finished_otherwise_finished_at_idx ATTACH PARTITION watchbill.finished_otherwise_20240115_finished_at_idx;

ALTER INDEX watchbill.finished_otherwise_id_idx ATTACH PARTITION watchbill.finished_otherwise_20240115_id_idx;

ALTER INDEX watchbill.finished_otherwise_finished_at_idx ATTACH PARTITION watchbill.finished_otherwise_20240116_finished_at_idx;

ALTER INDEX watchbill.finished_otherwise_id_idx ATTACH PARTITION watchbill.finished_otherwise_20240116_id_idx;

ALTER INDEX watchbill.finished_otherwise_finished_at_idx ATTACH PARTITION watchbill.finished_otherwise_20240117_finished_at_idx;

ALTER INDEX watchbill.finished_otherwise_id_idx ATTACH PARTITION watchbill.finished_otherwise_20240117_id_idx;

ALTER INDEX watchbill.finished_otherwise_finished_at_idx ATTACH PARTITION watchbill.finished_otherwise_20261118_finished_at_idx;

ALTER INDEX watchbill.finished_otherwise_id_idx ATTACH PARTITION watchbill.finished_otherwise_20261118_id_idx;

ALTER INDEX watchbill.finished_otherwise_finished_at_idx ATTACH PARTITION watchbill.finished_otherwise_20261119_finished_at_idx;

ALTER INDEX watchbill.finished_otherwise_id_idx ATTACH PARTITION watchbill.finished_otherwise_20261119_id_idx;

ALTER INDEX watchbill.finished_otherwise_finished_at_idx ATTACH PARTITION watchbill.finished_otherwise_20261120_finished_at_idx;

ALTER INDEX watchbill.finished_otherwise_id_idx ATTACH PARTITION watchbill.finished_otherwise_20261120_id_idx;

ALTER INDEX watchbill.finished_otherwise_finished_at_idx ATTACH PARTITION watchbill.finished_otherwise_20261121_finished_at_idx;

ALTER INDEX watchbill.finished_otherwise_id_idx ATTACH PARTITION watchbill.finished_otherwise_20261121_id_idx;

ALTER INDEX watchbill.finished_otherwise_finished_at_idx ATTACH PARTITION watchbill.finished_otherwise_20261122_finished_at_idx;

ALTER INDEX watchbill.finished_otherwise_id_idx ATTACH PARTITION watchbill.finished_otherwise_20261122_id_idx;

ALTER INDEX watchbill.finished_otherwise_finished_at_idx ATTACH PARTITION watchbill.finished_otherwise_20261123_finished_at_idx;

ALTER INDEX watchbill.finished_otherwise_id_idx ATTACH PARTITION watchbill.finished_otherwise_20261123_id_idx;

ALTER INDEX watchbill.finished_otherwise_finished_at_idx ATTACH PARTITION watchbill.finished_otherwise_20261124_finished_at_idx;

ALTER INDEX watchbill.finished_otherwise_id_idx ATTACH PARTITION watchbill.finished_otherwise_20261124_id_idx;

ALTER INDEX watchbill.finished_otherwise_finished_at_idx ATTACH PARTITION watchbill.finished_otherwise_20261125_finished_at_idx;

ALTER INDEX watchbill.finished_otherwise_id_idx ATTACH PARTITION watchbill.finished_otherwise_20261125_id_idx;

ALTER INDEX watchbill.finished_otherwise_finished_at_idx ATTACH PARTITION watchbill.finished_otherwise_default_finished_at_idx;

ALTER INDEX watchbill.finished_otherwise_id_idx ATTACH PARTITION watchbill.finished_otherwise_default_id_idx;

ALTER INDEX watchbill.finished_jobs_finished_at ATTACH PARTITION watchbill.finished_otherwise_finished_at_idx;

ALTER INDEX watchbill.finished_jobs_id ATTACH PARTITION watchbill.finished_otherwise_id_idx;

ALTER INDEX watchbill.finished_succeeded_finished_at_idx ATTACH PARTITION watchbill.finished_succeeded_20240113_finished_at_idx;

ALTER INDEX watchbill.finished_succeeded_id_idx ATTACH PARTITION watchbill.finished_succeeded_20240113_id_idx;

ALTER INDEX watchbill.finished_succeeded_finished_at_idx ATTACH PARTITION watchbill.finished_succeeded_20240114_finished_at_idx;

ALTER INDEX watchbill.finished_succeeded_id_idx ATTACH PARTITION watchbill.finished_succeeded_20240114_id_idx;

ALTER INDEX watchbill.finished_succeeded_finished_at_idx ATTACH PARTITION watchbill.finished_succeeded_20240115_finished_at_idx;

ALTER INDEX watchbill.finished_succeeded_id_idx ATTACH PARTITION watchbill.finished_succeeded_20240115_id_idx;

ALTER INDEX watchbill.finished_succeeded_finished_at_idx ATTACH PARTITION watchbill.finished_succeeded_20240116_finished_at_idx;

ALTER INDEX watchbill.finished_succeeded_id_idx ATTACH PARTITION watchbill.finished_succeeded_20240116_id_idx;

ALTER INDEX watchbill.finished_succeeded_finished_at_idx ATTACH PARTITION watchbill.finished_succeeded_20240117_finished_at_idx;

ALTER INDEX watchbill.finished_succeeded_id_idx ATTACH PARTITION watchbill.finished_succeeded_20240117_id_idx;

ALTER INDEX watchbill.finished_succeeded_finished_at_idx ATTACH PARTITION watchbill.finished_succeeded_20261118_finished_at_idx;

ALTER INDEX watchbill.finished_succeeded_id_idx ATTACH PARTITION watchbill.finished_succeeded_20261118_id_idx;

ALTER INDEX watchbill.finished_succeeded_finished_at_idx ATTACH PARTITION watchbill.finished_succeeded_20261119_finished_at_idx;

ALTER INDEX watchbill.finished_succeeded_id_idx ATTACH PARTITION watchbill.finished_succeeded_20261119_id_idx;

ALTER INDEX watchbill.finished_succeeded_finished_at_idx ATTACH PARTITION watchbill.finished_succeeded_20261120_finished_at_idx;

ALTER INDEX watchbill.finished_succeeded_id_idx ATTACH PARTITION watchbill.finished_succeeded_20261120_id_idx;

ALTER INDEX watchbill.finished_succeeded_finished_at_idx ATTACH PARTITION watchbill.finished_succeeded_20261121_finished_at_idx;

ALTER INDEX watchbill.finished_succeeded_id_idx ATTACH PARTITION watchbill.finished_succeeded_20261121_id_idx;

ALTER INDEX watchbill.finished_succeeded_finished_at_idx ATTACH PARTITION watchbill.finished_succeeded_20261122_finished_at_idx;

ALTER INDEX watchbill.finished_succeeded_id_idx ATTACH PARTITION watchbill.finished_succeeded_20261122_id_idx;

ALTER INDEX watchbill.finished_succeeded_finished_at_idx ATTACH PARTITION watchbill.finished_succeeded_20261123_finished_at_idx;

ALTER INDEX watchbill.finished_succeeded_id_idx ATTACH PARTITION watchbill.finished_succeeded_20261123_id_idx;

ALTER INDEX watchbill.finished_succeeded_finished_at_idx ATTACH PARTITION watchbill.finished_succeeded_20261124_finished_at_idx;

ALTER INDEX watchbill.finished_succeeded_id_idx ATTACH PARTITION watchbill.finished_succeeded_20261124_id_idx;

ALTER INDEX watchbill.finished_succeeded_finished_at_idx ATTACH PARTITION watchbill.finished_succeeded_20261125_finished_at_idx;

ALTER INDEX watchbill.finished_succeeded_id_idx ATTACH PARTITION watchbill.finished_succeeded_20261125_id_idx;

ALTER INDEX watchbill.finished_succeeded_finished_at_idx ATTACH PARTITION watchbill.finished_succeeded_default_finished_at_idx;

ALTER INDEX watchbill.finished_succeeded_id_idx ATTACH PARTITION watchbill.finished_succeeded_default_id_idx;

ALTER INDEX watchbill.finished_jobs_finished_at ATTACH PARTITION watchbill.finished_succeeded_finished_at_idx;

ALTER INDEX watchbill.finished_jobs_id ATTACH PARTITION watchbill.finished_succeeded_id_idx;

ALTER INDEX watchbill.slots_due_by ATTACH PARTITION watchbill.slots_202401_due_by_idx;

ALTER INDEX watchbill.slots_pkey ATTACH PARTITION watchbill.slots_202401_pkey;

ALTER INDEX watchbill.slots_open ATTACH PARTITION watchbill.slots_202401_schedule_id_idx;

ALTER INDEX watchbill.slots_not_succeeded ATTACH PARTITION watchbill.slots_202401_schedule_id_slot_idx;

ALTER INDEX watchbill.slots_overdue ATTACH PARTITION watchbill.slots_202401_schedule_id_slot_idx1;

ALTER INDEX watchbill.slots_due_by ATTACH PARTITION watchbill.slots_202402_due_by_idx;

ALTER INDEX watchbill.slots_pkey ATTACH PARTITION watchbill.slots_202402_pkey;

ALTER INDEX watchbill.slots_open ATTACH PARTITION watchbill.slots_202402_schedule_id_idx;

ALTER INDEX watchbill.slots_not_succeeded ATTACH PARTITION watchbill.slots_202402_schedule_id_slot_idx;

ALTER INDEX watchbill.slots_overdue ATTACH PARTITION watchbill.slots_202402_schedule_id_slot_idx1;

ALTER INDEX watchbill.slots_due_by ATTACH PARTITION watchbill.slots_202403_due_by_idx;

ALTER INDEX watchbill.slots_pkey ATTACH PARTITION watchbill.slots_202403_pkey;

ALTER INDEX watchbill.slots_open ATTACH PARTITION watchbill.slots_202403_schedule_id_idx;

ALTER INDEX watchbill.slots_not_succeeded ATTACH PARTITION watchbill.slots_202403_schedule_id_slot_idx;

ALTER INDEX watchbill.slots_overdue ATTACH PARTITION watchbill.slots_202403_schedule_id_slot_idx1;

ALTER INDEX watchbill.slots_due_by ATTACH PARTITION watchbill.slots_202611_due_by_idx;

ALTER INDEX watchbill.slots_pkey ATTACH PARTITION watchbill.slots_202611_pkey;

ALTER INDEX watchbill.slots_open ATTACH PARTITION watchbill.slots_202611_schedule_id_idx;

ALTER INDEX watchbill.slots_not_succeeded ATTACH PARTITION watchbill.slots_202611_schedule_id_slot_idx;

ALTER INDEX watchbill.slots_overdue ATTACH PARTITION watchbill.slots_202611_schedule_id_slot_idx1;

ALTER INDEX watchbill.slots_due_by ATTACH PARTITION watchbill.slots_202612_due_by_idx;

ALTER INDEX watchbill.slots_pkey ATTACH PARTITION watchbill.slots_202612_pkey;

ALTER INDEX watchbill.slots_open ATTACH PARTITION watchbill.slots_202612_schedule_id_idx;

ALTER INDEX watchbill.slots_not_succeeded ATTACH PARTITION watchbill.slots_202612_schedule_id_slot_idx;

ALTER INDEX watchbill.slots_overdue ATTACH PARTITION watchbill.slots_202612_schedule_id_slot_idx1;

ALTER INDEX watchbill.slots_due_by ATTACH PARTITION watchbill.slots_202701_due_by_idx;

ALTER INDEX watchbill.slots_pkey ATTACH PARTITION watchbill.slots_202701_pkey;

ALTER INDEX watchbill.slots_open ATTACH PARTITION watchbill.slots_202701_schedule_id_idx;

ALTER INDEX watchbill.slots_not_succeeded ATTACH PARTITION watchbill.slots_202701_schedule_id_slot_idx;

ALTER INDEX watchbill.slots_overdue ATTACH PARTITION watchbill.slots_202701_schedule_id_slot_idx1;

ALTER INDEX watchbill.slots_due_by ATTACH PARTITION watchbill.slots_default_due_by_idx;

ALTER INDEX watchbill.slots_pkey ATTACH PARTITION watchbill.slots_default_pkey;

ALTER INDEX watchbill.slots_open ATTACH PARTITION watchbill.slots_default_schedule_id_idx;

ALTER INDEX watchbill.slots_not_succeeded ATTACH PARTITION watchbill.slots_default_schedule_id_slot_idx;

ALTER INDEX watchbill.slots_overdue ATTACH PARTITION watchbill.slots_default_schedule_id_slot_idx1;

CREATE TRIGGER change_job INSTEAD OF UPDATE ON public.jobforge_jobs FOR EACH ROW EXECUTE FUNCTION public.jobforge__change_job();

CREATE TRIGGER delete_job INSTEAD OF DELETE ON public.jobforge_jobs FOR EACH ROW EXECUTE FUNCTION public.jobforge__delete_job();

CREATE TRIGGER insert_job INSTEAD OF INSERT ON public.jobforge_jobs FOR EACH ROW EXECUTE FUNCTION public.jobforge__insert_job();

CREATE TRIGGER refuse_change INSTEAD OF INSERT OR DELETE OR UPDATE ON public.jobforge_job_results FOR EACH ROW EXECUTE FUNCTION public.jobforge__refuse_change('a result belongs to its job: complete the job, or delete it');

CREATE TRIGGER check_schedule BEFORE INSERT OR UPDATE ON watchbill.schedules FOR EACH ROW EXECUTE FUNCTION watchbill._check_schedule();

CREATE TRIGGER check_schedule_command BEFORE INSERT OR UPDATE ON watchbill.schedules FOR EACH ROW WHEN ((new.command IS NOT NULL)) EXECUTE FUNCTION watchbill._check_schedule_command();

CREATE TRIGGER mark_bound_roles AFTER INSERT OR DELETE OR UPDATE OR TRUNCATE ON watchbill.tenant_roles FOR EACH STATEMENT EXECUTE FUNCTION watchbill._mark_changed_roles();

CREATE TRIGGER set_timer AFTER INSERT OR DELETE OR UPDATE ON watchbill.schedules FOR EACH ROW EXECUTE FUNCTION watchbill._set_timer();

ALTER TABLE watchbill.attempts ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.attempts_20240113 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.attempts_20240114 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.attempts_20240115 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.attempts_20240116 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.attempts_20240117 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.attempts_20261118 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.attempts_20261119 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.attempts_20261120 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.attempts_20261121 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.attempts_20261122 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.attempts_20261123 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.attempts_20261124 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.attempts_20261125 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.attempts_default ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.audit ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.erasures ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_jobs ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_otherwise ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_otherwise_20240113 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_otherwise_20240114 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_otherwise_20240115 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_otherwise_20240116 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_otherwise_20240117 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_otherwise_20261118 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_otherwise_20261119 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_otherwise_20261120 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_otherwise_20261121 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_otherwise_20261122 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_otherwise_20261123 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_otherwise_20261124 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_otherwise_20261125 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_otherwise_default ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_succeeded ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_succeeded_20240113 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_succeeded_20240114 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_succeeded_20240115 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_succeeded_20240116 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_succeeded_20240117 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_succeeded_20261118 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_succeeded_20261119 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_succeeded_20261120 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_succeeded_20261121 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_succeeded_20261122 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_succeeded_20261123 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_succeeded_20261124 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_succeeded_20261125 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.finished_succeeded_default ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.idempotency ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.jobs ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.quota_changes ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.quota_seconds ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.quota_usage ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.schedules ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.slots ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.slots_202401 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.slots_202402 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.slots_202403 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.slots_202611 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.slots_202612 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.slots_202701 ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.slots_default ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant_rows ON watchbill.attempts USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.attempts_20240113 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.attempts_20240114 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.attempts_20240115 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.attempts_20240116 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.attempts_20240117 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.attempts_20261118 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.attempts_20261119 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.attempts_20261120 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.attempts_20261121 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.attempts_20261122 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.attempts_20261123 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.attempts_20261124 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.attempts_20261125 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.attempts_default USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.audit USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.erasures USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_jobs USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_otherwise USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_otherwise_20240113 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_otherwise_20240114 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_otherwise_20240115 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_otherwise_20240116 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_otherwise_20240117 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_otherwise_20261118 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_otherwise_20261119 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_otherwise_20261120 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_otherwise_20261121 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_otherwise_20261122 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_otherwise_20261123 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_otherwise_20261124 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_otherwise_20261125 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_otherwise_default USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_succeeded USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_succeeded_20240113 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_succeeded_20240114 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_succeeded_20240115 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_succeeded_20240116 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_succeeded_20240117 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_succeeded_20261118 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_succeeded_20261119 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_succeeded_20261120 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_succeeded_20261121 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_succeeded_20261122 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_succeeded_20261123 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_succeeded_20261124 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_succeeded_20261125 USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.finished_succeeded_default USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.idempotency USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.jobs USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.quota_changes USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.quota_seconds USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.quota_usage USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.schedules USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.slots USING (((( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant) = ''::text) OR (EXISTS ( SELECT
   FROM watchbill.schedules s
  WHERE (s.id = slots.schedule_id))))) WITH CHECK (((( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant) = ''::text) OR (EXISTS ( SELECT
   FROM watchbill.schedules s
  WHERE (s.id = slots.schedule_id))) OR watchbill._refuse_tenant(NULL::text)));

CREATE POLICY tenant_rows ON watchbill.slots_202401 USING (((( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant) = ''::text) OR (EXISTS ( SELECT
   FROM watchbill.schedules s
  WHERE (s.id = slots_202401.schedule_id))))) WITH CHECK (((( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant) = ''::text) OR (EXISTS ( SELECT
   FROM watchbill.schedules s
  WHERE (s.id = slots_202401.schedule_id))) OR watchbill._refuse_tenant(NULL::text)));

CREATE POLICY tenant_rows ON watchbill.slots_202402 USING (((( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant) = ''::text) OR (EXISTS ( SELECT
   FROM watchbill.schedules s
  WHERE (s.id = slots_202402.schedule_id))))) WITH CHECK (((( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant) = ''::text) OR (EXISTS ( SELECT
   FROM watchbill.schedules s
  WHERE (s.id = slots_202402.schedule_id))) OR watchbill._refuse_tenant(NULL::text)));

CREATE POLICY tenant_rows ON watchbill.slots_202403 USING (((( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant) = ''::text) OR (EXISTS ( SELECT
   FROM watchbill.schedules s
  WHERE (s.id = slots_202403.schedule_id))))) WITH CHECK (((( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant) = ''::text) OR (EXISTS ( SELECT
   FROM watchbill.schedules s
  WHERE (s.id = slots_202403.schedule_id))) OR watchbill._refuse_tenant(NULL::text)));

CREATE POLICY tenant_rows ON watchbill.slots_202611 USING (((( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant) = ''::text) OR (EXISTS ( SELECT
   FROM watchbill.schedules s
  WHERE (s.id = slots_202611.schedule_id))))) WITH CHECK (((( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant) = ''::text) OR (EXISTS ( SELECT
   FROM watchbill.schedules s
  WHERE (s.id = slots_202611.schedule_id))) OR watchbill._refuse_tenant(NULL::text)));

CREATE POLICY tenant_rows ON watchbill.slots_202612 USING (((( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant) = ''::text) OR (EXISTS ( SELECT
   FROM watchbill.schedules s
  WHERE (s.id = slots_202612.schedule_id))))) WITH CHECK (((( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant) = ''::text) OR (EXISTS ( SELECT
   FROM watchbill.schedules s
  WHERE (s.id = slots_202612.schedule_id))) OR watchbill._refuse_tenant(NULL::text)));

CREATE POLICY tenant_rows ON watchbill.slots_202701 USING (((( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant) = ''::text) OR (EXISTS ( SELECT
   FROM watchbill.schedules s
  WHERE (s.id = slots_202701.schedule_id))))) WITH CHECK (((( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant) = ''::text) OR (EXISTS ( SELECT
   FROM watchbill.schedules s
  WHERE (s.id = slots_202701.schedule_id))) OR watchbill._refuse_tenant(NULL::text)));

CREATE POLICY tenant_rows ON watchbill.slots_default USING (((( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant) = ''::text) OR (EXISTS ( SELECT
   FROM watchbill.schedules s
  WHERE (s.id = slots_default.schedule_id))))) WITH CHECK (((( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant) = ''::text) OR (EXISTS ( SELECT
   FROM watchbill.schedules s
  WHERE (s.id = slots_default.schedule_id))) OR watchbill._refuse_tenant(NULL::text)));

CREATE POLICY tenant_rows ON watchbill.tenants USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

CREATE POLICY tenant_rows ON watchbill.uniques USING (
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END) WITH CHECK ((
CASE ( SELECT watchbill._find_visible_tenant() AS _find_visible_tenant)
    WHEN ''::text THEN true
    WHEN tenant THEN true
    ELSE false
END OR watchbill._refuse_tenant(tenant)));

ALTER TABLE watchbill.tenants ENABLE ROW LEVEL SECURITY;

ALTER TABLE watchbill.uniques ENABLE ROW LEVEL SECURITY;

