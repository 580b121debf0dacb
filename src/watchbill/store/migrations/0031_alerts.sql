-- Creates the tables of alerts: what operators have set, episodes, where they are sent, and what is
-- silenced. docs/explanation/schema.md describes them.

-- What operators have changed. _alert_rule_defaults() has the rules, and their values where a row
-- is missing or a column is NULL.
CREATE TABLE alert_rules (
  rule text COLLATE "C" NOT NULL,
  subject text COLLATE "C" NOT NULL DEFAULT '', -- '': all subjects that have no row of their own
  above float8 CHECK (above >= 0),
  lasting interval CHECK (lasting >= interval '0'),
  severity text COLLATE "C" CHECK (severity IN ('info', 'warning', 'critical')),
  is_enabled boolean,
  changed_by text NOT NULL,
  changed_at timestamptz NOT NULL,
  PRIMARY KEY (rule, subject)
);

-- An episode: from the moment at which something is wrong until it is well again.
CREATE TABLE alerts (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  rule text COLLATE "C" NOT NULL,
  subject text COLLATE "C" NOT NULL,
  tenant text COLLATE "C", -- that the subject belongs to; NULL: to none, or to several
  severity text COLLATE "C" NOT NULL,
  state text COLLATE "C" NOT NULL CHECK (state IN ('pending', 'firing', 'cleared')),
  since timestamptz NOT NULL,
  fired_at timestamptz,
  cleared_at timestamptz,
  well_since timestamptz, -- of a firing one: since when it is well, which has to last
  announced_at timestamptz, -- when it was handed to the routes; NULL: a silence keeps it back
  value float8,
  above float8,
  reason text NOT NULL,
  detail jsonb NOT NULL DEFAULT '{}',
  CHECK ((state = 'cleared') = (cleared_at IS NOT NULL)),
  CHECK (state = 'pending' OR fired_at IS NOT NULL)
);
CREATE UNIQUE INDEX alerts_open ON alerts (rule, subject) WHERE cleared_at IS NULL;
CREATE INDEX alerts_cleared ON alerts (cleared_at) WHERE cleared_at IS NOT NULL;

-- What no table shows afterwards: functions note it where it happens.
CREATE TABLE alert_events (
  rule text COLLATE "C" NOT NULL,
  subject text COLLATE "C" NOT NULL,
  at timestamptz NOT NULL, -- the last time
  value float8 NOT NULL,
  PRIMARY KEY (rule, subject)
);

CREATE TABLE alert_routes (
  name text COLLATE "C" PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9._-]{1,100}$'),
  kind text COLLATE "C" NOT NULL CHECK (kind IN ('webhook', 'slack', 'mail', 'command', 'log')),
  target text, -- an address, or a reference to one; of a command, its name in the settings
  secret text, -- a reference; never a secret
  matcher jsonb NOT NULL DEFAULT '{}', -- which alerts it takes
  is_enabled boolean NOT NULL DEFAULT true,
  changed_by text NOT NULL,
  changed_at timestamptz NOT NULL,
  CHECK ((kind = 'log') = (target IS NULL))
);

CREATE TABLE alert_deliveries (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(), -- the same whenever it is sent again
  alert bigint, -- NULL: a test of the route
  route text COLLATE "C" NOT NULL,
  event text COLLATE "C" NOT NULL CHECK (event IN ('raised', 'cleared', 'test')),
  state text COLLATE "C" NOT NULL DEFAULT 'waiting'
    CHECK (state IN ('waiting', 'delivered', 'given_up')),
  created_at timestamptz NOT NULL,
  due_at timestamptz NOT NULL, -- who claims it puts this off
  tries int NOT NULL DEFAULT 0,
  ended_at timestamptz,
  error text, -- of the last try
  CHECK ((event = 'test') = (alert IS NULL)),
  CHECK ((state = 'waiting') = (ended_at IS NULL))
);
CREATE UNIQUE INDEX alert_deliveries_once ON alert_deliveries (alert, route, event);
CREATE INDEX alert_deliveries_due ON alert_deliveries (due_at) WHERE ended_at IS NULL;
CREATE INDEX alert_deliveries_created ON alert_deliveries (created_at);

CREATE TABLE silences (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  matcher jsonb NOT NULL,
  until timestamptz NOT NULL,
  reason text,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL
);
CREATE INDEX silences_until ON silences (until);

INSERT INTO chore_marks (chore, due_at) VALUES ('alerts', '2000-01-01 00:00:00+00');
