-- These statements read how old the data of a standby is, and how much of a server is in use.

-- name: data_age
-- Needs no schema. Nodes send heartbeats, so this is a few seconds even if nothing else changes.
SELECT
  CASE
    WHEN pg_is_in_recovery() THEN
      greatest(
        clock_timestamp()
          - coalesce(pg_last_xact_replay_timestamp(), pg_postmaster_start_time()),
        '0')
  END
