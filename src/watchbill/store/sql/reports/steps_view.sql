-- Shows every stored step. A sleep whose wake time has come is over, even before its job runs on.
CREATE OR REPLACE VIEW step AS
SELECT
  s.job_id, s.tenant, s.name, s.seq, s.kind,
  CASE
    WHEN s.state = 'waiting' AND s.kind = 'sleep' AND s.wake_at <= _clock() THEN 'done'
    ELSE s.state
  END AS state,
  s.run, s.version, s.tries, s.started_at, s.ended_at, s.wake_at, s.result, s.error, s.fence,
  s.signals, s.ask
FROM steps s;

-- Shows each step in which a suspended job waits: for which signals, since when and until when.
CREATE OR REPLACE VIEW waiting_step AS
SELECT
  s.job_id, s.tenant, j.type, j.queue, s.name, s.kind, s.started_at AS since, s.wake_at AS until,
  s.signals, s.ask, j.idempotency_key, s.seq
FROM jobs j
JOIN steps s ON s.job_id = j.id AND s.tenant = j.tenant AND s.ended_at IS NULL
  AND s.state <> 'begun'
WHERE j.wait IN ('delayed', 'waiting')
  AND j.wait_key = 'steps'
  AND j.fence = 0;
