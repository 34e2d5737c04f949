-- Overrides that a load has read and that are not in force yet. A batch is named by
-- the hash of all rows of its load up to its last, so a load that is repeated finds
-- what is there already.
CREATE TABLE stint_staged (
  batch VARCHAR(64) NOT NULL,
  number INT NOT NULL,
  staged BIGINT NOT NULL,
  rule VARCHAR(64) NOT NULL,
  client_key {{key}} NOT NULL,
  action SMALLINT NOT NULL,
  limits TEXT NOT NULL,
  expires BIGINT NOT NULL,
  reason VARCHAR(1000) NOT NULL,
  PRIMARY KEY (batch, number)
){{text}};
