-- Lets only functions draw the id of a schedule. docs/explanation/schema.md describes the table.

-- The trigger check_schedule draws the id with the rights of the owner. A default would be computed
-- with the rights of the operator that inserts the row, who therefore could use up the numbers that
-- all tenants share.
ALTER TABLE schedules ALTER COLUMN id DROP DEFAULT;
