-- Shows one row for each pinned task. If a pin has several alternatives, shows the first one that
-- the owner matches, or else the first. A pin to labels that the owner has shows the owner's name
-- as its pattern.
CREATE OR REPLACE VIEW @facade@.@prefix@lock
WITH (security_invoker = true) AS
SELECT DISTINCT ON (p.token_group, p.key)
  p.token AS token_id,
  p.key AS task_id,
  CASE
    WHEN p.pattern IS NOT NULL THEN p.pattern
    WHEN _has_labels(n.name, n.labels, p.labels) THEN n.name
    ELSE p.labels::text
  END AS node_pattern,
  p.reason,
  p.created_by,
  p.created_at,
  p.expires_at,
  p.token_group AS site
FROM pins p
LEFT JOIN tokens x ON x.token_group = p.token_group AND x.token = p.token
LEFT JOIN nodes n ON n.epoch = x.epoch
WHERE p.state = 'active'
  AND p.token_group = coalesce(nullif(current_setting('watchbill.site', true), ''), p.token_group)
ORDER BY
  p.token_group, p.key,
  coalesce(n.name LIKE p.pattern, _has_labels(n.name, n.labels, p.labels), false) DESC,
  p.rank;

-- Clears the pin of a task, with all its alternatives. Locks the row of the token group.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_clear_lock()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM clear_pins(OLD.site, key => OLD.task_id);
  RETURN OLD;
END $$;

CREATE OR REPLACE TRIGGER clear_lock
INSTEAD OF DELETE ON @facade@.@prefix@lock
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_clear_lock();
