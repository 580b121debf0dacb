-- Something that may be wrong with a subject. A rule that asks yes or no finds only what is wrong,
-- and has no value. `own_above` is the threshold of this subject, if it has one.
SELECT _create_type('alert_finding', $$
  rule text,
  subject text,
  tenant text,
  value float8,
  own_above float8,
  reason text,
  detail jsonb$$);
