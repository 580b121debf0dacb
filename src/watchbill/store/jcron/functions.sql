-- The functions of the schema jcron: Watchbill's cron engine by pattern, under the names of the
-- JCRON guide.
--
-- Each function is one expression. PostgreSQL binds its names when the function is created, so no
-- search_path changes its meaning. PostgreSQL also inlines it: a call costs nothing, and a constant
-- pattern is parsed once for a query.

CREATE OR REPLACE FUNCTION {jcron}.parse_cron(
  pattern text,
  tz text DEFAULT 'UTC',
  dst text DEFAULT 'default',
  anchor timestamptz DEFAULT '1970-01-01 00:00:00+00'
)
RETURNS cron
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN parse_cron(pattern, tz, dst, anchor);

CREATE OR REPLACE FUNCTION {jcron}.next_run(cron cron, after timestamptz DEFAULT now())
RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
RETURN next_run(cron, after);

CREATE OR REPLACE FUNCTION {jcron}.prev_run(cron cron, before timestamptz DEFAULT now())
RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
RETURN prev_run(cron, before);

CREATE OR REPLACE FUNCTION {jcron}.next_time(
  pattern text,
  after timestamptz DEFAULT now(),
  tz text DEFAULT 'UTC',
  dst text DEFAULT 'default',
  anchor timestamptz DEFAULT '1970-01-01 00:00:00+00'
)
RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
RETURN next_run(parse_cron(pattern, tz, dst, anchor), after);

CREATE OR REPLACE FUNCTION {jcron}.prev_time(
  pattern text,
  before timestamptz DEFAULT now(),
  tz text DEFAULT 'UTC',
  dst text DEFAULT 'default',
  anchor timestamptz DEFAULT '1970-01-01 00:00:00+00'
)
RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
RETURN prev_run(parse_cron(pattern, tz, dst, anchor), before);

CREATE OR REPLACE FUNCTION {jcron}.next_n_times(
  pattern text,
  n int,
  after timestamptz DEFAULT now(),
  tz text DEFAULT 'UTC',
  dst text DEFAULT 'default',
  anchor timestamptz DEFAULT '1970-01-01 00:00:00+00'
)
RETURNS SETOF timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
  SELECT * FROM cron_upcoming(parse_cron(pattern, tz, dst, anchor), n, after);
END;

CREATE OR REPLACE FUNCTION {jcron}.schedule_between(
  pattern text,
  start timestamptz,
  "end" timestamptz,
  tz text DEFAULT 'UTC',
  dst text DEFAULT 'default',
  anchor timestamptz DEFAULT '1970-01-01 00:00:00+00'
)
RETURNS SETOF timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
  SELECT * FROM cron_between(parse_cron(pattern, tz, dst, anchor), start, "end");
END;

CREATE OR REPLACE FUNCTION {jcron}.is_match(
  pattern text,
  at timestamptz DEFAULT now(),
  tz text DEFAULT 'UTC',
  dst text DEFAULT 'default',
  anchor timestamptz DEFAULT '1970-01-01 00:00:00+00'
)
RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
RETURN cron_matches(parse_cron(pattern, tz, dst, anchor), at);

CREATE OR REPLACE FUNCTION {jcron}.get_duration(
  pattern text,
  after timestamptz DEFAULT now(),
  tz text DEFAULT 'UTC',
  dst text DEFAULT 'default',
  anchor timestamptz DEFAULT '1970-01-01 00:00:00+00'
)
RETURNS interval
LANGUAGE sql STABLE PARALLEL SAFE
RETURN _cron_measure_window(parse_cron(pattern, tz, dst, anchor), after);

CREATE OR REPLACE FUNCTION {jcron}.time_until_next(
  pattern text,
  now timestamptz DEFAULT now(),
  tz text DEFAULT 'UTC',
  dst text DEFAULT 'default',
  anchor timestamptz DEFAULT '1970-01-01 00:00:00+00'
)
RETURNS interval
LANGUAGE sql STABLE PARALLEL SAFE
RETURN next_run(parse_cron(pattern, tz, dst, anchor), now) - now;

-- Says whether a pattern and its zone are valid, for example in a CHECK. A pattern that names no
-- day of the calendar, such as February 30, is not. The names of zones are constants in functions,
-- so the CHECK also holds during a restore.
CREATE OR REPLACE FUNCTION {jcron}.is_valid_pattern(pattern text, tz text DEFAULT 'UTC')
RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN is_valid_cron(pattern, tz);

CREATE OR REPLACE FUNCTION {jcron}.validate_pattern(pattern text, tz text DEFAULT 'UTC')
RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN is_valid_cron(pattern, tz);

-- Returns true for a valid pattern; raises an error that says why if the pattern is invalid.
CREATE OR REPLACE FUNCTION {jcron}.check_pattern(
  pattern text, tz text DEFAULT 'UTC', dst text DEFAULT 'default'
)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN _check_cron_names_a_day(pattern, parse_cron(pattern, tz, dst));

CREATE OR REPLACE FUNCTION {jcron}.get_frequency(
  pattern text,
  tz text DEFAULT 'UTC',
  dst text DEFAULT 'default',
  anchor timestamptz DEFAULT '1970-01-01 00:00:00+00'
)
RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN _cron_describe_frequency(parse_cron(pattern, tz, dst, anchor));

-- Returns the milliseconds from b to a, to the microsecond.
CREATE OR REPLACE FUNCTION {jcron}.fast_time_diff_ms(a timestamptz, b timestamptz)
RETURNS numeric
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN round((extract(epoch FROM a) - extract(epoch FROM b)) * 1000, 3);

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {jcron} FROM PUBLIC;
