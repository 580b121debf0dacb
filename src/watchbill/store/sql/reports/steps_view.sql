-- Shows every stored step. A sleep whose wake time has come is over, even before its job runs on.
CREATE OR REPLACE VIEW step AS
SELECT
  s.job_id, s.tenant, s.name, s.seq, s.kind,
  CASE WHEN s.state = 'waiting' AND s.wake_at <= _clock() THEN 'done' ELSE s.state END AS state,
  s.run, s.version, s.tries, s.started_at, s.ended_at, s.wake_at, s.result, s.error, s.fence
FROM steps s;
