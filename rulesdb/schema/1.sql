-- The version row. Every writing transaction updates it, so that numbers have no
-- gaps and are in the order of the commits.
CREATE TABLE stint_state (
  id INT NOT NULL PRIMARY KEY,
  identity VARCHAR(64) NOT NULL,
  epoch BIGINT NOT NULL,
  revision BIGINT NOT NULL,
  change_number BIGINT NOT NULL,
  audit_number BIGINT NOT NULL,
  oldest_change BIGINT NOT NULL
){{text}};

-- Every document of rules that was ever in force. Rows are never changed.
CREATE TABLE stint_revisions (
  number BIGINT NOT NULL PRIMARY KEY,
  parent BIGINT NOT NULL,
  author VARCHAR(255) NOT NULL,
  created BIGINT NOT NULL,
  remark TEXT NOT NULL,
  name VARCHAR(255) NOT NULL,
  hash VARCHAR(64) NOT NULL,
  document {{document}} NOT NULL
){{text}};

-- Customers' own limits. action: 0 removed, 1 limits, 2 unlimited, 3 block.
CREATE TABLE stint_overrides (
  rule VARCHAR(64) NOT NULL,
  client_key {{key}} NOT NULL,
  action SMALLINT NOT NULL,
  limits TEXT NOT NULL,
  created BIGINT NOT NULL,
  expires BIGINT NOT NULL,
  reason VARCHAR(1000) NOT NULL,
  author VARCHAR(255) NOT NULL,
  change_number BIGINT NOT NULL,
  PRIMARY KEY (rule, client_key)
){{text}};
CREATE INDEX stint_overrides_change ON stint_overrides (change_number);

-- Which plan a customer has.
CREATE TABLE stint_plans (
  attribute VARCHAR(128) NOT NULL,
  attribute_value {{key}} NOT NULL,
  plan VARCHAR(128) NOT NULL,
  author VARCHAR(255) NOT NULL,
  created BIGINT NOT NULL,
  change_number BIGINT NOT NULL,
  PRIMARY KEY (attribute, attribute_value)
){{text}};
CREATE INDEX stint_plans_change ON stint_plans (change_number);

-- What each node holds.
CREATE TABLE stint_nodes (
  node VARCHAR(255) NOT NULL PRIMARY KEY,
  revision BIGINT NOT NULL,
  change_number BIGINT NOT NULL,
  hash VARCHAR(64) NOT NULL,
  since BIGINT NOT NULL,
  seen BIGINT NOT NULL,
  error TEXT NOT NULL
){{text}};

-- Who did what.
CREATE TABLE stint_audit (
  number BIGINT NOT NULL PRIMARY KEY,
  created BIGINT NOT NULL,
  author VARCHAR(255) NOT NULL,
  act VARCHAR(64) NOT NULL,
  subject VARCHAR(1000) NOT NULL,
  was TEXT NOT NULL,
  now TEXT NOT NULL,
  reason VARCHAR(1000) NOT NULL
){{text}};

-- Tokens of the API, by their SHA-256.
CREATE TABLE stint_tokens (
  hash VARCHAR(64) NOT NULL PRIMARY KEY,
  name VARCHAR(255) NOT NULL,
  role VARCHAR(16) NOT NULL,
  created BIGINT NOT NULL,
  expires BIGINT NOT NULL,
  revoked BIGINT NOT NULL
){{text}};

-- Who works for a target right now.
CREATE TABLE stint_leases (
  name VARCHAR(255) NOT NULL PRIMARY KEY,
  holder VARCHAR(255) NOT NULL,
  ends BIGINT NOT NULL
){{text}};
