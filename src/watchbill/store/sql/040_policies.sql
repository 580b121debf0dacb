-- {"kind": "exponential", "base": 1, "factor": 2, "cap": 3600, "jitter": 1} -> the id of a policy with that content.
CREATE OR REPLACE FUNCTION policy(retry jsonb) RETURNS int LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  this int;
  k text;
  b float8;
  f float8;
  c float8;
  j float8;
  d float8[];
BEGIN
  IF retry IS NULL THEN RETURN 1; END IF;
  k := coalesce(retry->>'kind', 'exponential');          -- here and not above: a DECLARE's errors pass its block's EXCEPTION by
  b := coalesce((retry->>'base')::float8, 1);
  f := coalesce((retry->>'factor')::float8, 2);
  c := coalesce((retry->>'cap')::float8, 3600);
  j := coalesce((retry->>'jitter')::float8, 1);
  d := (SELECT array_agg(x::float8 ORDER BY n) FROM jsonb_array_elements_text(retry->'delays') WITH ORDINALITY e(x, n));
  IF retry - '{kind,base,factor,cap,jitter,delays}'::text[] <> '{}' OR k = 'list' AND d IS NULL
      OR EXISTS (SELECT FROM unnest(d) x WHERE x IS NULL OR x NOT BETWEEN 0 AND 315360000) THEN
    RAISE check_violation;
  END IF;
  SELECT min(p.id) INTO this FROM policies p WHERE p.kind = k AND p.base = b AND p.factor = f AND p.cap = c AND p.jitter = j
    AND p.delays IS NOT DISTINCT FROM d;
  IF this IS NULL THEN
    INSERT INTO policies (kind, base, factor, cap, jitter, delays) VALUES (k, b, f, c, j, d) RETURNING id INTO this;
  END IF;
  RETURN this;
EXCEPTION WHEN check_violation OR invalid_text_representation OR numeric_value_out_of_range OR invalid_parameter_value THEN
  RAISE EXCEPTION 'retry policy % cannot be used', retry USING ERRCODE = 'WB003',
    HINT = 'kind is exponential, linear, fixed or list; base and cap are seconds up to ten years; factor is 1..100; jitter is 0..1; delays is a list of 1..1000 seconds';
END $$;

-- Seconds to wait before the attempt after this one. The exponent is bounded, so nothing overflows whatever the attempt.
CREATE OR REPLACE FUNCTION backoff(p policies, attempt int) RETURNS float8 LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
  SELECT w * (1 - p.jitter * random())
  FROM (SELECT least(p.cap, CASE p.kind
    WHEN 'exponential' THEN p.base * power(p.factor, least(greatest(attempt, 1) - 1, 100))
    WHEN 'linear' THEN p.base * greatest(attempt, 1)
    WHEN 'fixed' THEN p.base
    ELSE p.delays[least(greatest(attempt, 1), cardinality(p.delays))] END) AS w) x $$;
