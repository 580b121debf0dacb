-- Shows every lock that has been granted and not pruned since. An expired lock keeps its holder
-- until another caller acquires it. A lock that was released has no holder.
CREATE OR REPLACE VIEW lock AS
SELECT
  l.name,
  CASE
    WHEN l.holder IS NULL THEN 'free'
    WHEN _lock_end(l.epoch, l.expires_at) <= _clock() THEN 'expired'
    ELSE 'held'
  END AS state,
  l.holder, l.fence, l.epoch, l.acquired_at,
  nullif(_lock_end(l.epoch, l.expires_at), '-infinity') AS expires_at,
  CASE WHEN l.holder IS NULL THEN l.released_at END AS released_at,
  l.awaited
FROM locks l;
