-- What a producer may say of a job; the shape of enqueue_many's input, and of the temporary table for COPY.
DO $$
BEGIN
  CREATE TYPE new_job AS (
    id uuid, type text, payload jsonb, queue text, priority int, run_at timestamptz, delay interval, tenant text,
    max_attempts int, retry jsonb, timeout interval, version int, idempotency_key text, idempotency_window interval, created_by text, meta jsonb,
    depends_on uuid[], run_if text);
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

-- What is wrong with a job, or NULL. `horizon` is the least UUIDv7, as text, that lies too far ahead of the clock.
CREATE OR REPLACE FUNCTION new_job_fault(n new_job, max_payload int, horizon text) RETURNS text LANGUAGE sql STABLE
  RETURN CASE
    WHEN coalesce((n).type, '') = '' OR length((n).type) > 200 THEN 'type must be a text of 1 to 200 characters'
    WHEN coalesce((n).queue, '') = '' OR length((n).queue) > 100 THEN 'queue must be a text of 1 to 100 characters'
    WHEN coalesce((n).tenant, '') = '' OR length((n).tenant) > 200 THEN 'tenant must be a text of 1 to 200 characters'
    WHEN coalesce((n).priority, 32768) NOT BETWEEN -32768 AND 32767 THEN 'priority must be within -32768..32767'
    WHEN coalesce((n).max_attempts, 0) NOT BETWEEN 1 AND 32767 THEN 'max_attempts must be within 1..32767'
    WHEN coalesce((n).version, 0) < 1 THEN 'version must be 1 or more'
    WHEN (n).run_at IS NOT NULL AND (n).delay IS NOT NULL THEN 'give run_at or delay, not both'
    WHEN (n).run_at NOT BETWEEN '0001-01-03 00:00+00' AND '9999-12-29 00:00+00' THEN 'run_at must be a finite time, within the years 1 to 9999'
    WHEN (n).delay < interval '0' OR (n).delay > interval '100 years' THEN 'delay must be within 0 and 100 years'
    WHEN (n).timeout <= interval '0' OR (n).timeout > interval '1 year' THEN 'timeout must be more than 0 and at most a year'
    WHEN (n).idempotency_window IS NOT NULL AND (n).idempotency_key IS NULL THEN 'idempotency_window needs an idempotency_key'
    WHEN (n).idempotency_window <= interval '0' OR (n).idempotency_window > interval '100 years' THEN 'idempotency_window must be more than 0 and at most 100 years'
    WHEN (n).idempotency_key = '' OR length((n).idempotency_key) > 500 THEN 'idempotency_key must be a text of 1 to 500 characters'
    WHEN octet_length((n).tenant) + octet_length((n).type) + octet_length((n).idempotency_key) > 2500 THEN 'tenant, type and idempotency_key have more than 2500 bytes together'
    WHEN (n).run_if NOT IN ('all_succeeded', 'all_finished', 'any_failed') THEN format('run_if must be all_succeeded, all_finished or any_failed, not %L', (n).run_if)
    WHEN (n).run_if IS NOT NULL AND coalesce(cardinality((n).depends_on), 0) = 0 THEN 'run_if needs depends_on'
    WHEN array_position((n).depends_on, NULL) IS NOT NULL THEN 'depends_on must name jobs by their ids'
    WHEN coalesce(jsonb_typeof((n).payload), '') <> 'object' THEN 'payload must be a JSON object, one key per parameter'
    WHEN jsonb_typeof((n).meta) <> 'object' THEN 'meta must be a JSON object'
    WHEN max_payload IS NOT NULL AND pg_column_size((n).payload || '{}') > max_payload THEN   -- || unpacks what a table had compressed
      format('the payload has %s bytes, the limit is %s: store it elsewhere and send a reference', pg_column_size((n).payload || '{}'), max_payload)
    WHEN (n).id::text >= horizon AND substr((n).id::text, 15, 1) = '7' THEN 'the id lies more than an hour ahead of the database''s clock'
  END;

-- True for the common job in which nothing can be wrong; a twentieth of the work of new_job_fault. Inlined, so that a bulk pays no call per row.
CREATE OR REPLACE FUNCTION is_plain_job(n new_job, max_payload int) RETURNS boolean LANGUAGE sql STABLE
  RETURN length((n).type) BETWEEN 1 AND 200 AND length((n).queue) BETWEEN 1 AND 100 AND length((n).tenant) BETWEEN 1 AND 200
    AND (n).priority BETWEEN -32768 AND 32767 AND (n).max_attempts BETWEEN 1 AND 32767 AND (n).version >= 1
    AND (n).run_at IS NULL AND (n).delay IS NULL AND (n).timeout IS NULL AND (n).idempotency_key IS NULL AND (n).idempotency_window IS NULL AND (n).depends_on IS NULL AND (n).run_if IS NULL
    AND jsonb_typeof((n).payload) = 'object' AND coalesce(jsonb_typeof((n).meta), 'object') = 'object'
    AND (max_payload IS NULL OR pg_column_compression((n).payload) IS NULL AND pg_column_size((n).payload) <= max_payload);

CREATE OR REPLACE FUNCTION id_horizon(t timestamptz) RETURNS text LANGUAGE sql STABLE
  RETURN overlay(lpad(to_hex((extract(epoch FROM t) * 1000)::bigint + 3600000), 12, '0') PLACING '-' FROM 9 FOR 0);

CREATE OR REPLACE FUNCTION refuse_job(type text, why text) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  RAISE EXCEPTION 'job of type % refused: %', quote_nullable(type), why USING ERRCODE = 'WB003';
END $$;

CREATE OR REPLACE FUNCTION enqueue(
  type text, payload jsonb DEFAULT '{}', queue text DEFAULT 'default', priority int DEFAULT 0,
  run_at timestamptz DEFAULT NULL, delay interval DEFAULT NULL, tenant text DEFAULT 'default',
  max_attempts int DEFAULT 5, retry jsonb DEFAULT NULL, timeout interval DEFAULT NULL,
  idempotency_key text DEFAULT NULL, idempotency_window interval DEFAULT NULL, version int DEFAULT 1,
  INOUT id uuid DEFAULT NULL, created_by text DEFAULT NULL, meta jsonb DEFAULT NULL, resend boolean DEFAULT false, strict boolean DEFAULT false,
  max_payload int DEFAULT 100000, now timestamptz DEFAULT NULL, depends_on uuid[] DEFAULT NULL, run_if text DEFAULT NULL,
  OUT seq bigint, OUT created boolean, OUT payload_differs boolean
) LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(enqueue.now, clock());
  due timestamptz;
  one_of_ours uuid;
  first_seq bigint;
  stored boolean;
  fresh boolean;                                         -- its id was made within the hour: no job of this id can have finished, unless it is sent again
  fault text;
BEGIN
  IF enqueue.resend THEN PERFORM check_isolation('enqueue with resend'); END IF;   -- an older snapshot does not show what finished meanwhile
  IF enqueue.id IS NULL THEN
    id := uuid7(enqueue.now);
    fresh := true;
  ELSE
    fresh := abs(date_part('epoch', uuid_time(enqueue.id)) - date_part('epoch', t)) <= 3600;
  END IF;
  -- Every transaction prepares each expression that it meets anew, so the common job in which nothing can be wrong meets a short one.
  IF (fresh AND length(enqueue.type) BETWEEN 1 AND 200 AND length(enqueue.queue) BETWEEN 1 AND 100 AND length(enqueue.tenant) BETWEEN 1 AND 200
      AND enqueue.priority BETWEEN -32768 AND 32767 AND enqueue.max_attempts BETWEEN 1 AND 32767 AND enqueue.version >= 1
      AND num_nonnulls(enqueue.run_at, enqueue.delay, enqueue.timeout, enqueue.idempotency_key, enqueue.idempotency_window, enqueue.depends_on, enqueue.run_if) = 0
      AND jsonb_typeof(enqueue.payload) = 'object' AND coalesce(jsonb_typeof(enqueue.meta), 'object') = 'object' AND (enqueue.max_payload IS NULL OR pg_column_compression(enqueue.payload) IS NULL AND pg_column_size(enqueue.payload) <= enqueue.max_payload)) IS NOT TRUE THEN
    fault := new_job_fault(ROW(enqueue.id, enqueue.type, enqueue.payload, enqueue.queue, enqueue.priority, enqueue.run_at, enqueue.delay, enqueue.tenant,
      enqueue.max_attempts, enqueue.retry, enqueue.timeout, enqueue.version, enqueue.idempotency_key, enqueue.idempotency_window, enqueue.created_by, enqueue.meta,
      enqueue.depends_on, enqueue.run_if)::new_job, enqueue.max_payload, id_horizon(t));
    IF fault IS NOT NULL THEN PERFORM refuse_job(enqueue.type, fault); END IF;
  END IF;
  due := coalesce(enqueue.run_at, t + enqueue.delay, t);
  created := true;
  payload_differs := false;
  IF enqueue.idempotency_key IS NOT NULL THEN
    SELECT k.job_id, k.created, k.payload_differs INTO one_of_ours, created, payload_differs
      FROM take_key(enqueue.tenant, enqueue.type, enqueue.idempotency_key, enqueue.id, enqueue.payload, t + enqueue.idempotency_window, t) k;
    IF payload_differs AND enqueue.strict THEN
      RAISE EXCEPTION 'idempotency key % of type % was used with another payload, by job %', quote_literal(enqueue.idempotency_key), quote_literal(enqueue.type), one_of_ours
        USING ERRCODE = 'WB004';
    END IF;
    IF NOT created THEN
      id := one_of_ours;
      seq := seq_of(one_of_ours);
      RETURN;
    END IF;
  END IF;
  INSERT INTO jobs AS j (id, run_at, created_at, policy, timeout, version, priority, max_attempts, wait, queue, type, tenant, idempotency_key, created_by, payload, meta)
    VALUES (enqueue.id, due, t, CASE WHEN enqueue.retry IS NULL THEN 1 ELSE policy(enqueue.retry) END,
      extract(epoch FROM enqueue.timeout), enqueue.version, enqueue.priority, enqueue.max_attempts,
      CASE WHEN cardinality(enqueue.depends_on) > 0 THEN 'blocked' WHEN due > t THEN 'delayed' END, enqueue.queue, enqueue.type, enqueue.tenant, enqueue.idempotency_key, enqueue.created_by, enqueue.payload, enqueue.meta)
    ON CONFLICT (id) DO NOTHING RETURNING j.seq INTO seq;
  stored := seq IS NOT NULL;
  IF NOT stored THEN                                     -- sent before, and still unfinished
    seq := seq_of(enqueue.id);
    created := enqueue.resend;
  ELSIF enqueue.resend OR NOT fresh THEN                 -- no new id: its job may have finished
    first_seq := undo_if_finished(enqueue.id, seq);
    stored := first_seq = seq;
    created := enqueue.resend OR stored;
    seq := first_seq;
  END IF;
  IF cardinality(enqueue.depends_on) > 0 THEN
    IF stored THEN
      PERFORM depend(ARRAY[jsonb_populate_record(NULL::new_job, jsonb_build_object('id', enqueue.id, 'type', enqueue.type, 'tenant', enqueue.tenant,
        'depends_on', enqueue.depends_on, 'run_if', enqueue.run_if))], ARRAY[enqueue.id], ARRAY[true], t);
    END IF;
  ELSIF due > t THEN
    PERFORM wake_later(due, t);
  ELSIF NOT pg_try_advisory_xact_lock_shared(1181707369, 'jobs'::regclass::oid::int) THEN   -- as wake(), without the call
    PERFORM pg_notify('watchbill_' || 'jobs'::regclass::oid, 'ready ' || enqueue.queue);
  END IF;
END $$;

CREATE OR REPLACE FUNCTION seq_of(id uuid) RETURNS bigint LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT coalesce((SELECT j.seq FROM jobs j WHERE j.id = seq_of.id),
    (SELECT f.seq FROM finished_jobs f WHERE f.id = seq_of.id AND f.finished_at >= history_from(seq_of.id) LIMIT 1)) $$;

-- A first send whose reply was lost may have run to its end by now. Only a statement of its own sees that: the INSERT waited for the settle that
-- removed the row, but its snapshot is older.
CREATE OR REPLACE FUNCTION undo_if_finished(id uuid, seq bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  first_seq bigint;
BEGIN
  SELECT f.seq INTO first_seq FROM finished_jobs f WHERE f.id = undo_if_finished.id AND f.finished_at >= history_from(undo_if_finished.id) LIMIT 1;
  IF first_seq IS NULL THEN RETURN undo_if_finished.seq; END IF;
  DELETE FROM jobs j WHERE j.id = undo_if_finished.id AND j.seq = undo_if_finished.seq;
  RETURN first_seq;
END $$;

-- Takes an idempotency key for a job, or names the job that has it. A concurrent holder of the same key is waited for.
CREATE OR REPLACE FUNCTION take_key(tenant text, type text, key text, id uuid, payload jsonb, expires_at timestamptz, t timestamptz,
  OUT job_id uuid, OUT created boolean, OUT payload_differs boolean)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  hash uuid := md5(take_key.payload::text)::uuid;
  k idempotency;
BEGIN
  job_id := take_key.id;
  payload_differs := false;
  LOOP
    INSERT INTO idempotency (tenant, type, key, job_id, payload_hash, expires_at, created_at)
      VALUES (take_key.tenant, take_key.type, take_key.key, take_key.id, hash, take_key.expires_at, take_key.t) ON CONFLICT DO NOTHING;
    created := FOUND;
    IF created THEN RETURN; END IF;
    SELECT * INTO k FROM idempotency i WHERE i.tenant = take_key.tenant AND i.type = take_key.type AND i.key = take_key.key FOR UPDATE;
    EXIT WHEN FOUND;                                     -- else its row was purged while we waited for it
  END LOOP;
  IF k.job_id = take_key.id THEN                         -- our own, sent again
    created := true;
  ELSIF k.expires_at <= take_key.t OR k.expires_at IS NULL AND seq_of(k.job_id) IS NULL THEN
    UPDATE idempotency i SET job_id = take_key.id, payload_hash = hash, expires_at = take_key.expires_at, created_at = take_key.t
      WHERE i.tenant = take_key.tenant AND i.type = take_key.type AND i.key = take_key.key;
    created := true;
  ELSE
    job_id := k.job_id;
    payload_differs := k.payload_hash <> hash;
  END IF;
END $$;

-- Many at once: a JSON array of objects with the names of enqueue's arguments. Answers in the order given.
CREATE OR REPLACE FUNCTION enqueue_many(jobs jsonb, resend boolean DEFAULT false, strict boolean DEFAULT false, max_payload int DEFAULT 100000, now timestamptz DEFAULT NULL)
RETURNS TABLE (id uuid, seq bigint, created boolean, payload_differs boolean) LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(enqueue_many.now, clock());
  unknown_name text;
  depending boolean;
  news new_job[];
BEGIN
  IF jsonb_typeof(enqueue_many.jobs) <> 'array' OR jsonb_path_exists(enqueue_many.jobs, 'strict $[*] ? (@.type() != "object")', silent => true) THEN
    RAISE EXCEPTION 'enqueue_many takes a JSON array of jobs' USING ERRCODE = 'WB003';
  END IF;
  SELECT max(k) FILTER (WHERE k <> ALL ('{id,type,payload,queue,priority,run_at,delay,tenant,max_attempts,retry,timeout,version,idempotency_key,idempotency_window,created_by,meta,depends_on,run_if}')),
      bool_or(k = 'depends_on') INTO unknown_name, depending FROM jsonb_array_elements(enqueue_many.jobs) o(job), jsonb_object_keys(o.job) k;
  IF unknown_name IS NOT NULL THEN
    RAISE EXCEPTION 'a job has no %', quote_literal(unknown_name) USING ERRCODE = 'WB003', HINT = 'the names are those of enqueue''s arguments';
  END IF;
  IF depending THEN jobs := ids_for_places(enqueue_many.jobs, t); END IF;
  news := ARRAY(SELECT ROW(coalesce(n.id, uuid7(t + n.ordinality * interval '1 microsecond')), n.type, coalesce(n.payload, '{}'), coalesce(n.queue, 'default'), coalesce(n.priority, 0), n.run_at, n.delay,
      coalesce(n.tenant, 'default'), coalesce(n.max_attempts, 5), n.retry, n.timeout, coalesce(n.version, 1), n.idempotency_key, n.idempotency_window, n.created_by, n.meta, n.depends_on, n.run_if)::new_job
    FROM jsonb_populate_recordset(NULL::new_job, enqueue_many.jobs) WITH ORDINALITY n);
  RETURN QUERY SELECT * FROM insert_jobs(news, enqueue_many.resend, enqueue_many.strict, enqueue_many.max_payload, t);
END $$;

-- In depends_on a number is a place in the array, from 0: a definition that names no ids can be enqueued again and again, as a schedule does.
CREATE OR REPLACE FUNCTION ids_for_places(jobs jsonb, t timestamptz) RETURNS jsonb LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  ids text[] := ARRAY(SELECT coalesce(o.job->>'id', uuid7(ids_for_places.t + o.n * interval '1 microsecond')::text)
    FROM jsonb_array_elements(ids_for_places.jobs) WITH ORDINALITY o(job, n) ORDER BY o.n);
BEGIN
  PERFORM refuse_job(x.job->>'type', CASE WHEN jsonb_typeof(x.job->'depends_on') NOT IN ('array', 'null') THEN 'depends_on must be an array of ids, or of places in this call'
      ELSE format('depends_on names place %s, but this call has the places 0 to %s', x.wrong, cardinality(ids) - 1) END)
    FROM (SELECT o.job, (SELECT p FROM jsonb_array_elements(CASE jsonb_typeof(o.job->'depends_on') WHEN 'array' THEN o.job->'depends_on' ELSE '[]' END) p
        WHERE jsonb_typeof(p) = 'number' AND (p::numeric <> trunc(p::numeric) OR p::numeric NOT BETWEEN 0 AND cardinality(ids) - 1) LIMIT 1) AS wrong
      FROM jsonb_array_elements(ids_for_places.jobs) o(job)) x
    WHERE jsonb_typeof(x.job->'depends_on') NOT IN ('array', 'null') OR x.wrong IS NOT NULL LIMIT 1;
  RETURN (SELECT jsonb_agg(o.job || jsonb_build_object('id', ids[o.n]) || CASE jsonb_typeof(o.job->'depends_on') WHEN 'array' THEN jsonb_build_object('depends_on', (
        SELECT jsonb_agg(CASE jsonb_typeof(p.it) WHEN 'number' THEN to_jsonb(ids[p.it::int + 1]) ELSE p.it END ORDER BY p.n)
        FROM jsonb_array_elements(o.job->'depends_on') WITH ORDINALITY p(it, n))) ELSE '{}' END ORDER BY o.n)
    FROM jsonb_array_elements(ids_for_places.jobs) WITH ORDINALITY o(job, n));
END $$;

-- Many more: rows copied into a temporary table made with CREATE TEMP TABLE name OF <schema>.new_job ON COMMIT DROP. What is NULL has its default.
-- Answers only for those that were not created.
CREATE OR REPLACE FUNCTION enqueue_from(source regclass, resend boolean DEFAULT false, strict boolean DEFAULT false, max_payload int DEFAULT 100000, now timestamptz DEFAULT NULL)
RETURNS TABLE (id uuid, seq bigint, created boolean, payload_differs boolean) LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(enqueue_from.now, clock());
  news new_job[];
BEGIN
  EXECUTE format('SELECT ARRAY(SELECT ROW(coalesce(n.id, uuid7($1 + row_number() OVER () * interval ''1 microsecond'')), n.type, coalesce(n.payload, ''{}''),
      coalesce(n.queue, ''default''), coalesce(n.priority, 0), n.run_at, n.delay, coalesce(n.tenant, ''default''), coalesce(n.max_attempts, 5), n.retry, n.timeout,
      coalesce(n.version, 1), n.idempotency_key, n.idempotency_window, n.created_by, n.meta, n.depends_on, n.run_if)::new_job FROM %s n)', enqueue_from.source) INTO news USING t;
  RETURN QUERY SELECT * FROM insert_jobs(news, enqueue_from.resend, enqueue_from.strict, enqueue_from.max_payload, t) i WHERE NOT i.created;
END $$;

-- Bulk is judged in one cheap pass; only what does not pass it is looked at closely, or inserted one by one.
CREATE OR REPLACE FUNCTION insert_jobs(news new_job[], resend boolean, strict boolean, max_payload int, t timestamptz)
RETURNS TABLE (id uuid, seq bigint, created boolean, payload_differs boolean) LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET jit = off AS $$
#variable_conflict use_column
DECLARE
  horizon text := id_horizon(insert_jobs.t);
  newest uuid := rpad(replace(horizon, '-', ''), 32, '0');
  oldest uuid := lpad(to_hex((extract(epoch FROM insert_jobs.t) * 1000)::bigint - 3600000), 12, '0') || '70008000000000000000';   -- as in enqueue
  plain boolean;
  awaited uuid[];
  ids uuid[];
  seqs bigint[];
  created_ones boolean[];
  differing boolean[];
BEGIN
  SELECT bool_and(coalesce(is_plain_job(n, insert_jobs.max_payload), false) AND n.id >= oldest AND n.id < newest AND get_byte(uuid_send(n.id), 6) >> 4 = 7) INTO plain
    FROM unnest(insert_jobs.news) n;
  IF NOT plain THEN
    PERFORM refuse_job(x.type, x.fault) FROM (SELECT n.type, new_job_fault(n, insert_jobs.max_payload, horizon) AS fault FROM unnest(insert_jobs.news) n) x
      WHERE x.fault IS NOT NULL LIMIT 1;
    awaited := ARRAY(SELECT unnest(x.depends_on) FROM unnest(insert_jobs.news) x);
  END IF;
  IF insert_jobs.resend OR NOT plain AND EXISTS (SELECT FROM unnest(insert_jobs.news) x WHERE x.idempotency_key IS NOT NULL OR x.id < oldest OR substr(x.id::text, 15, 1) <> '7') THEN
    SELECT array_agg(i.id), array_agg(i.seq), array_agg(i.created), array_agg(i.payload_differs) INTO ids, seqs, created_ones, differing
      FROM insert_jobs_one_by_one(insert_jobs.news, insert_jobs.resend, insert_jobs.strict, insert_jobs.t) i;
    IF cardinality(awaited) > 0 THEN
      PERFORM depend(insert_jobs.news, ids, CASE WHEN NOT insert_jobs.resend THEN created_ones END, insert_jobs.t);
    END IF;
    RETURN QUERY SELECT * FROM unnest(ids, seqs, created_ones, differing);
    RETURN;
  END IF;
  RETURN QUERY
    WITH p AS MATERIALIZED (SELECT r.retry, policy(r.retry) AS policy FROM (SELECT DISTINCT x.retry FROM unnest(insert_jobs.news) x WHERE x.retry IS NOT NULL) r)
    INSERT INTO jobs (id, run_at, created_at, policy, timeout, version, priority, max_attempts, awaited, wait, queue, type, tenant, created_by, payload, meta)
      SELECT x.id, coalesce(x.run_at, insert_jobs.t + x.delay, insert_jobs.t), insert_jobs.t,
        CASE WHEN x.retry IS NULL THEN 1 ELSE (SELECT p.policy FROM p WHERE p.retry = x.retry) END, extract(epoch FROM x.timeout), x.version, x.priority, x.max_attempts,
        x.id IN (SELECT unnest(awaited)),
        CASE WHEN cardinality(x.depends_on) > 0 THEN 'blocked' WHEN coalesce(x.run_at, insert_jobs.t + x.delay) > insert_jobs.t THEN 'delayed' END,
        x.queue, x.type, x.tenant, x.created_by, x.payload, x.meta
      FROM unnest(insert_jobs.news) x RETURNING id, seq, true, false;
  PERFORM wake(q.queue) FROM (SELECT DISTINCT x.queue FROM unnest(insert_jobs.news) x
    WHERE coalesce(x.run_at, insert_jobs.t + x.delay, insert_jobs.t) <= insert_jobs.t AND x.depends_on IS NULL) q;
  IF NOT plain THEN
    PERFORM wake_later(min(x.due), insert_jobs.t) FROM (SELECT coalesce(n.run_at, insert_jobs.t + n.delay) AS due FROM unnest(insert_jobs.news) n) x WHERE x.due > insert_jobs.t;
  END IF;
  IF cardinality(awaited) > 0 THEN
    PERFORM depend(insert_jobs.news, ARRAY(SELECT x.id FROM unnest(insert_jobs.news) x), array_fill(true, ARRAY[cardinality(insert_jobs.news)]), insert_jobs.t);
  END IF;
END $$;

-- Keys are taken in sorted order, so that two bulks with the same keys wait for each other and never deadlock.
CREATE OR REPLACE FUNCTION insert_jobs_one_by_one(news new_job[], resend boolean, strict boolean, t timestamptz)
RETURNS TABLE (id uuid, seq bigint, created boolean, payload_differs boolean) LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
  WITH sorted AS MATERIALIZED (
      SELECT * FROM unnest(insert_jobs_one_by_one.news) WITH ORDINALITY AS n(id, type, payload, queue, priority, run_at, delay, tenant,
        max_attempts, retry, timeout, version, idempotency_key, idempotency_window, created_by, meta, depends_on, run_if, place)
      ORDER BY n.tenant, n.type, n.idempotency_key, n.place),
    done AS MATERIALIZED (
      SELECT s.place, e.* FROM sorted s CROSS JOIN LATERAL enqueue(s.type, s.payload, s.queue, s.priority, s.run_at, s.delay, s.tenant, s.max_attempts,
        s.retry, s.timeout, s.idempotency_key, s.idempotency_window, s.version, s.id, s.created_by, s.meta, insert_jobs_one_by_one.resend, insert_jobs_one_by_one.strict,
        NULL, insert_jobs_one_by_one.t) e)
  SELECT d.id, d.seq, d.created, d.payload_differs FROM done d ORDER BY d.place $$;
