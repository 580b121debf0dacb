-- Creates the tables of token groups, which say which node owns which keys.
-- docs/explanation/cluster.md explains them.

-- Every function that changes the tokens or the pins of a group locks the row of the group first.
CREATE TABLE token_groups (
  name text COLLATE "C" PRIMARY KEY CHECK (name <> ''),
  total int NOT NULL CHECK (total BETWEEN 1 AND 10000000),
  hash text COLLATE "C" NOT NULL DEFAULT 'md5'
    CHECK (hash IN ('md5', 'sha256', 'double_sha256')),
  min_nodes int NOT NULL DEFAULT 1 CHECK (min_nodes >= 1),
  handover_timeout interval NOT NULL DEFAULT '30 seconds' CHECK (handover_timeout > '0'),
  -- This number is raised by each change of who owns a token.
  version bigint NOT NULL DEFAULT 0,
  -- This number is raised by each change of the pins.
  pins_version bigint NOT NULL DEFAULT 0,
  -- The members for which the last plan was made; NULL if a new plan is wanted.
  planned_members bigint[],
  planned_pins_version bigint NOT NULL DEFAULT 0,
  -- The number of the next pin's token. It only grows, so no lane is used for two keys.
  next_pin int NOT NULL,
  created_at timestamptz NOT NULL
);

-- A node that has left or is lost is not a member, even if it has a row here.
CREATE TABLE members (
  token_group text COLLATE "C" NOT NULL,
  epoch bigint NOT NULL,
  joined_at timestamptz NOT NULL,
  is_leaving boolean NOT NULL DEFAULT false, -- it gets no tokens, and passes on those that it has
  PRIMARY KEY (token_group, epoch)
);
CREATE INDEX members_epoch ON members (epoch);

-- The rows of one key are alternatives, in the order of rank: the first that matches a member
-- counts.
CREATE TABLE pins (
  token_group text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  rank int NOT NULL CHECK (rank >= 1),
  token int NOT NULL, -- its own, the same for all alternatives of a key
  pattern text COLLATE "C", -- of node names, as in LIKE
  labels jsonb CHECK (jsonb_typeof(labels) = 'object'),
  reason text,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  expires_at timestamptz, -- NULL: never
  -- `clearing` means that the pin is being removed and the key moves to the owner of its own token;
  -- `ending` means that the key has moved and its own token counts again.
  state text COLLATE "C" NOT NULL DEFAULT 'active'
    CHECK (state IN ('active', 'clearing', 'ending')),
  -- Jobs and items of the key may still have another lane than the pin. 0, or the transaction after
  -- whose end no producer uses the other lane any more; NULL if all have the right lane.
  settling xid8 DEFAULT '0',
  PRIMARY KEY (token_group, key, rank),
  CHECK (num_nonnulls(pattern, labels) = 1)
);
CREATE INDEX pins_token ON pins (token_group, token);
CREATE INDEX pins_expires_at ON pins (token_group, expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX pins_settling ON pins (token_group) WHERE settling IS NOT NULL;

-- Lists the items that members have claimed for themselves: one row per item and scope.
CREATE TABLE item_claims (
  token_group text COLLATE "C" NOT NULL,
  scope text COLLATE "C" NOT NULL, -- such as a date; '': none
  key text COLLATE "C" NOT NULL,
  token int NOT NULL,
  epoch bigint NOT NULL,
  node text COLLATE "C" NOT NULL, -- its name: the item stays longer than the row of the node
  fence bigint NOT NULL,
  state text COLLATE "C" NOT NULL CHECK (state IN ('held', 'released', 'finished')),
  claimed_at timestamptz NOT NULL,
  ended_at timestamptz,
  PRIMARY KEY (token_group, scope, key)
) WITH (fillfactor = 70);
CREATE INDEX item_claims_held ON item_claims (token_group, epoch, token) WHERE state = 'held';
CREATE INDEX item_claims_ended_at ON item_claims (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE rebalances (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  token_group text COLLATE "C" NOT NULL,
  at timestamptz NOT NULL,
  reason text COLLATE "C" NOT NULL,
  leader text COLLATE "C",
  nodes_before text[] COLLATE "C" NOT NULL,
  nodes_after text[] COLLATE "C" NOT NULL,
  moved int NOT NULL, -- tokens that got, or will get, another owner
  version bigint NOT NULL,
  duration interval NOT NULL
);
CREATE INDEX rebalances_at ON rebalances (token_group, at);
