-- Lets the jobs of an endpoint run in the order of their enqueues. docs/explanation/schema.md
-- describes the column.
ALTER TABLE connector_endpoints ADD COLUMN ordered boolean NOT NULL DEFAULT false;
DROP FUNCTION IF EXISTS endpoint_list(text, text); -- its result has more columns
