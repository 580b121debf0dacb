-- Notifications: `meta` of a job may say `notify`, an object with `endpoint` or `url`, `on` (some
-- of succeeded, dead and canceled) and `result`. Such a job gets a second one, which delivers a
-- webhook when the first has ended: in the same transaction, so that it exists if and only if the
-- first does. `delivery` in the object is the id of the second.

-- Checks what a new job says in `notify`, and returns its meta with the id of the delivery.
CREATE OR REPLACE FUNCTION _prepare_notification(n new_job, t timestamptz)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  given jsonb := n.meta->'notify';
BEGIN
  IF jsonb_typeof(n.meta) <> 'object' THEN RETURN n.meta; END IF;
  IF coalesce(jsonb_typeof(given), '') <> 'object'
    OR num_nonnulls(given->>'endpoint', given->>'url') <> 1
    OR coalesce(jsonb_typeof(given->'on'), '') <> 'array'
    OR given->'on' = '[]'
    OR NOT given->'on' <@ '["succeeded", "dead", "canceled"]'
    OR coalesce(jsonb_typeof(given->'result'), 'boolean') <> 'boolean'
    OR given - '{endpoint,url,on,result,delivery}'::text[] <> '{}' THEN
    PERFORM _refuse_job(
      n.type,
      'notify must have endpoint or url, on with some of succeeded, dead and canceled, and may '
      'have result, which is true or false');
  ELSIF n.on_duplicate = 'replace' OR n.debounce_wait IS NOT NULL THEN
    PERFORM _refuse_job(
      n.type,
      'notify and on_duplicate=replace or debounce_wait exclude each other: the job that is '
      'replaced has its own notification');
  END IF;
  RETURN jsonb_set(n.meta, '{notify,delivery}', to_jsonb(uuid7(t)));
END $$;

-- Stores the delivery that waits for the end of a job. Marks the job as awaited.
CREATE OR REPLACE FUNCTION _add_notification(job_id uuid, tenant text, notify jsonb, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM
  FROM _insert_jobs(
    ARRAY[
      jsonb_populate_record(
        NULL::new_job,
        jsonb_build_object(
          'id', notify->'delivery',
          'type', 'connector.webhook.deliver',
          'queue', 'webhooks',
          'payload', jsonb_strip_nulls(jsonb_build_object(
            'endpoint', notify->'endpoint',
            'url', notify->'url',
            'notify', jsonb_build_object(
              'job', job_id, 'on', notify->'on',
              'result', coalesce(notify->'result', 'false')))),
          'priority', 0,
          'tenant', tenant,
          'max_attempts', 10,
          'version', 1,
          'depends_on', jsonb_build_array(job_id),
          'run_if', 'all_finished'))],
    false, true, false, NULL, t);
END $$;

-- Stores another delivery for a finished job that runs again, unless the last one has not run yet.
-- The job is in `jobs` again. Writes its row, and locks that of the last delivery: one that runs
-- now has kept what it says, or will see that the job runs again.
CREATE OR REPLACE FUNCTION _notify_again(f finished_jobs, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  notify jsonb := jsonb_set(f.meta->'notify', '{delivery}', to_jsonb(uuid7(t)));
BEGIN
  PERFORM
  FROM jobs j
  WHERE j.id = (f.meta->'notify'->>'delivery')::uuid
    AND j.tenant = f.tenant
    AND NOT j.payload ? 'type'
  FOR UPDATE;
  IF FOUND THEN RETURN; END IF;
  UPDATE jobs j SET meta = jsonb_set(j.meta, '{notify}', notify) WHERE j.id = f.id;
  PERFORM _add_notification(f.id, f.tenant, notify, t);
END $$;

-- Keeps in a delivery what it says of the job that has ended, so that each try sends the same
-- bytes. Returns the content as it is stored; NULL if the delivery has another fence now, and if
-- the job runs again, or has ended once more. Locks the row of the delivery, as _notify_again()
-- does.
CREATE OR REPLACE FUNCTION _keep_notification(
  id uuid,
  fence bigint,
  job_id uuid,
  finished_at timestamptz,
  content jsonb
)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  PERFORM
  FROM jobs j
  WHERE j.id = id
    AND j.fence = fence
    AND j.fence <> 0
    AND j.type = 'connector.webhook.deliver'
  FOR UPDATE;
  IF NOT FOUND
    OR NOT EXISTS (
      SELECT FROM finished_jobs f WHERE f.id = job_id AND f.finished_at = finished_at) THEN
    RETURN NULL;
  END IF;
  UPDATE jobs j SET payload = j.payload || content WHERE j.id = id;
  RETURN content;
END $$;
