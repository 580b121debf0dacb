-- Returns the id of a retry policy, and stores the policy if it is new. `retry` is an object such
-- as {"kind": "exponential", "base": 10, "factor": 3, "cap": 21600, "jitter": 0.2}.
CREATE OR REPLACE FUNCTION _policy_id(retry jsonb)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  policy_id int;
BEGIN
  IF retry IS NULL THEN RETURN 1; END IF;
  SELECT min(p.id) INTO policy_id FROM policies p WHERE p.definition = retry;
  RETURN coalesce(policy_id, _add_retry_policy(retry));
END $$;

-- Checks and stores a retry policy. This is not a part of _policy_id(), because the EXCEPTION
-- clause would start a subtransaction there for every job.
CREATE OR REPLACE FUNCTION _add_retry_policy(retry jsonb)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  policy_id int;
  k text;
  b float8;
  f float8;
  c float8;
  j float8;
  d float8[];
BEGIN
  -- These values are not set in DECLARE, because the EXCEPTION clause does not catch errors raised
  -- there.
  k := coalesce(retry->>'kind', 'exponential');
  b := coalesce((retry->>'base')::float8, 10);
  f := coalesce((retry->>'factor')::float8, 3);
  c := coalesce((retry->>'cap')::float8, 21600);
  j := coalesce((retry->>'jitter')::float8, 0.2);
  d := (
    SELECT array_agg(x::float8 ORDER BY n)
    FROM jsonb_array_elements_text(retry->'delays') WITH ORDINALITY e(x, n));
  IF retry - '{kind,base,factor,cap,jitter,delays}'::text[] <> '{}'
      OR k = 'list' AND d IS NULL
      OR EXISTS (SELECT FROM unnest(d) x WHERE x IS NULL OR x NOT BETWEEN 0 AND 315360000) THEN
    RAISE check_violation;
  END IF;
  INSERT INTO policies (kind, base, factor, cap, jitter, delays, definition)
  VALUES (k, b, f, c, j, d, retry)
  RETURNING id INTO policy_id;
  RETURN policy_id;
EXCEPTION
  WHEN check_violation OR invalid_text_representation OR numeric_value_out_of_range
    OR invalid_parameter_value
  THEN
    RAISE EXCEPTION 'retry policy % is invalid', retry
      USING ERRCODE = 'WB003',
        HINT = 'kind is exponential, linear, fixed or list; '
          'base and cap are seconds up to ten years; factor is 1..100; jitter is 0..1; '
          'delays is a list of 1..1000 seconds';
END $$;

-- Returns how many seconds to wait before the next attempt. The exponent has an upper bound, so
-- that the power does not overflow.
CREATE OR REPLACE FUNCTION _backoff_seconds(p policies, attempt int)
RETURNS float8
LANGUAGE sql VOLATILE AS $$
  SELECT w * (1 - p.jitter * random())
  FROM (
    SELECT least(p.cap, CASE p.kind
      WHEN 'exponential' THEN p.base * power(p.factor, least(greatest(attempt, 1) - 1, 100))
      WHEN 'linear' THEN p.base * greatest(attempt, 1)
      WHEN 'fixed' THEN p.base
      ELSE p.delays[least(greatest(attempt, 1), cardinality(p.delays))]
    END) AS w) x
$$;
