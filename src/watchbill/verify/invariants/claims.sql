-- Invariants of claims, stop requests and nodes. These tables are small.

-- name: lost_claim_is_taken_back
-- kind: E
-- says: what a lost node held is taken back while another node lives
SELECT
  'claim ' || c.fence,
  format('node %s is %s, and its jobs still run for it', n.name, n.state),
  c.xmin::text || c.ctid
FROM {schema}.claims c
JOIN {schema}.nodes n USING (epoch)
WHERE n.state IN ('lost', 'left')
  AND EXISTS (
    SELECT
    FROM {schema}.jobs j
    WHERE j.id = ANY (c.job_ids)
      AND j.fence = c.fence)
  AND EXISTS (
    SELECT
    FROM {schema}.beats b
    JOIN {schema}.nodes m USING (epoch)
    WHERE b.at + m.lease > {schema}.now())

-- name: claim_has_node
-- kind: E
-- says: the node of a claim with running jobs exists
SELECT
  'claim ' || c.fence, format('there is no node with the epoch %s', c.epoch),
  c.xmin::text || c.ctid
FROM {schema}.claims c
WHERE NOT EXISTS (SELECT FROM {schema}.nodes n WHERE n.epoch = c.epoch)
  AND EXISTS (
    SELECT
    FROM {schema}.jobs j
    WHERE j.id = ANY (c.job_ids)
      AND j.fence = c.fence)

-- name: claim_is_swept
-- kind: E
-- says: a claim of an hour ago has a running job, while a node lives
SELECT 'claim ' || c.fence, 'none of its jobs runs any more', c.xmin::text || c.ctid
FROM {schema}.claims c
WHERE c.at < {schema}.now() - interval '1 hour'
  AND NOT EXISTS (
    SELECT
    FROM {schema}.jobs j
    WHERE j.id = ANY (c.job_ids)
      AND j.fence = c.fence)
  AND EXISTS (
    SELECT
    FROM {schema}.beats b
    JOIN {schema}.nodes m USING (epoch)
    WHERE b.at + m.lease > {schema}.now())

-- name: stop_request_has_job
-- kind: S
-- says: a stop request belongs to a job that is asked to stop
SELECT 'job ' || c.job_id, 'there is a stop request, and the job is not asked to stop'
FROM {schema}.cancels c
WHERE NOT EXISTS (
  SELECT
  FROM {schema}.jobs j
  WHERE j.id = c.job_id
    AND j.canceling
    AND j.fence = c.fence)

-- name: living_node_has_beat
-- kind: S
-- says: a living node has a beat, and no other has
SELECT
  'node ' || coalesce(n.name, epoch::text),
  CASE
    WHEN b.epoch IS NULL THEN format('it is %s, and has no beat', n.state)
    ELSE format('it is %s, and has a beat', coalesce(n.state, 'unknown'))
  END
FROM {schema}.nodes n
FULL JOIN {schema}.beats b USING (epoch)
WHERE (n.state IN ('active', 'draining')) IS DISTINCT FROM (b.epoch IS NOT NULL)

-- name: only_living_nodes_declare
-- kind: E
-- says: only living nodes have rows in node_types, runs, declarations and flow_declarations
SELECT
  'epoch ' || o.epoch,
  format('%s has rows of it, and no such node lives', o.relation),
  NULL
FROM (
  SELECT DISTINCT t.epoch, 'node_types' AS relation
  FROM {schema}.node_types t
  UNION ALL
  SELECT DISTINCT r.epoch, 'runs'
  FROM {schema}.runs r
  UNION ALL
  SELECT DISTINCT d.epoch, 'declarations'
  FROM {schema}.declarations d
  UNION ALL
  SELECT DISTINCT f.epoch, 'flow_declarations'
  FROM {schema}.flow_declarations f) o
WHERE NOT EXISTS (
  SELECT
  FROM {schema}.nodes n
  WHERE n.epoch = o.epoch
    AND n.state IN ('active', 'draining'))

-- name: only_living_nodes_are_candidates
-- kind: S
-- says: only a living node is a candidate
SELECT 'epoch ' || c.epoch, format('it is a candidate for %s, and does not live', c.group_name)
FROM {schema}.candidates c
LEFT JOIN {schema}.nodes n USING (epoch)
WHERE n.state IS NULL
  OR n.state NOT IN ('active', 'draining')

-- name: epoch_was_drawn
-- kind: S
-- says: no epoch is larger than the last number that was drawn
SELECT 'node ' || n.name, format('epoch %s was never drawn', n.epoch)
FROM {schema}.nodes n
WHERE n.epoch > (
  SELECT ((i.generation + {schema}._server_timeline())::bigint << 40) + s.last_value
  FROM {schema}.installation i
  CROSS JOIN {schema}.fence_seq s)
