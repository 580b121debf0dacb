-- Raises an error about a schedule, unless `why` is NULL.
CREATE OR REPLACE FUNCTION _refuse_schedule(name text, why text, hint text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF why IS NULL THEN
    RETURN;
  ELSIF hint IS NULL THEN
    RAISE EXCEPTION 'schedule % is invalid: %', quote_nullable(name), why
      USING ERRCODE = 'WB003';
  END IF;
  RAISE EXCEPTION 'schedule % is invalid: %', quote_nullable(name), why
    USING ERRCODE = 'WB003', HINT = hint;
END $$;

-- Says whether clients can read a time in every time zone. Python's times have the years 1 to 9999.
CREATE OR REPLACE FUNCTION _is_readable_time(t timestamptz)
RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN t >= '0001-01-02 00:00Z'::timestamptz AND t < '9999-12-31 00:00Z'::timestamptz;

-- Returns what is invalid in a schedule; NULL if nothing is.
CREATE OR REPLACE FUNCTION _find_schedule_error(s schedules)
RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT CASE
    WHEN coalesce(s.name, '') = '' OR length(s.name) > 200
      THEN 'name must be a text of 1 to 200 characters'
    WHEN num_nonnulls(s.pattern, s.every, s.at) > 1
      THEN 'give one of pattern, every and at, or none to run it on demand'
    WHEN s.type IS NOT NULL AND s.command IS NOT NULL
      THEN 'give a type or a command, not both'
    WHEN s.dst NOT IN ('default', 'skip', 'once', 'both')
      THEN format('dst must be default, skip, once or both, not %L', s.dst)
    WHEN s.missed NOT IN ('skip', 'once', 'catch_up')
      THEN format('missed must be skip, once or catch_up, not %L', s.missed)
    WHEN s.overlap NOT IN ('skip', 'queue', 'cancel_previous', 'allow')
      THEN format('overlap must be skip, queue, cancel_previous or allow, not %L', s.overlap)
    WHEN extract(year FROM s.every) <> 0 OR extract(month FROM s.every) <> 0
      THEN 'every must not have months, which differ in length: use a pattern'
    WHEN s.every NOT BETWEEN interval '1 second' AND interval '36500 days'
      THEN 'every must be between a second and 36500 days'
    WHEN NOT _is_readable_time(s.at)
      THEN 'at must be between 0001-01-02 and 9999-12-30'
    WHEN NOT _is_readable_time(s.start)
      THEN 'start must be between 0001-01-02 and 9999-12-30'
    WHEN NOT _is_readable_time(s."end")
      THEN 'end must be between 0001-01-02 and 9999-12-30'
    WHEN NOT _is_readable_time(s.created_at)
      THEN 'created_at must be between 0001-01-02 and 9999-12-30'
    WHEN NOT _is_readable_time(s.updated_at)
      THEN 'updated_at must be between 0001-01-02 and 9999-12-30'
    WHEN jsonb_typeof(s.declared_definition) <> 'object'
      THEN 'declared_definition must be a JSON object'
    WHEN s."end" < s.start
      THEN format('end (%s) must not be before start (%s)', s."end", s.start)
    WHEN s.at < s.start
      THEN format('at (%s) must not be before start (%s)', s.at, s.start)
    WHEN s.at > s."end"
      THEN format('at (%s) must not be after end (%s)', s.at, s."end")
    WHEN s.max_runs < 1
      THEN 'max_runs must be 1 or more'
    WHEN s.catch_up NOT BETWEEN 1 AND 10000
      THEN 'catch_up must be between 1 and 10000'
    WHEN s.jitter < interval '0' OR _is_over_a_year(s.jitter)
      THEN 'jitter must be between 0 and 365 days'
    WHEN s.grace NOT BETWEEN interval '0' AND interval '100 years'
      THEN 'grace must be between 0 and 100 years'
    WHEN s.deadline <= interval '0' OR _is_over_a_year(s.deadline)
      THEN 'deadline must be more than 0 and at most 365 days'
    WHEN s.expires <= interval '0' OR _is_over_a_year(s.expires)
      THEN 'expires must be more than 0 and at most 365 days'
    WHEN s.jitter > s.expires
      THEN format('jitter (%s) must not be longer than expires (%s)', s.jitter, s.expires)
    WHEN array_position(s.tags, NULL) IS NOT NULL OR '' = ANY (s.tags)
      THEN 'tags must be texts that are not empty'
    WHEN jsonb_typeof(s.context) <> 'object'
      THEN 'context must be a JSON object'
    -- A tick holds the contexts of a thousand slots at once.
    WHEN octet_length(s.context::text) > 16000
      THEN 'context must have at most 16000 bytes as text'
    WHEN length(s.description) > 4000
      THEN 'description must have at most 4000 characters'
    WHEN length(s.created_by) > 500
      THEN 'created_by must have at most 500 characters'
    WHEN s.role IS NOT NULL AND s.command IS NULL
      THEN 'a role needs a command'
    WHEN s.role IS NOT NULL AND to_regrole(quote_ident(s.role)) IS NULL
      THEN format('role %L does not exist', s.role)
    WHEN NOT pg_has_role(_caller(), s.role, 'MEMBER')
      THEN format('you must be a member of role %L', s.role)
    WHEN starts_with(s.type, 'watchbill.') AND s.type <> 'watchbill.flow'
      THEN format('its type must not be %L; give a command to run SQL', s.type)
    ELSE _job_error(
      jsonb_populate_record(NULL::new_job, jsonb_build_object(
        'type', coalesce(s.type, 'watchbill.sql'), 'payload', s.payload, 'queue', s.queue,
        'priority', s.priority, 'tenant', s.tenant, 'max_attempts', s.max_attempts,
        'timeout', s.timeout, 'version', s.version)),
      100000, NULL, true)
  END
$$;
