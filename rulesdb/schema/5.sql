-- Which act of the audit gave a customer the override; 0 if that is not known. An
-- undo puts back the number with the override.
ALTER TABLE stint_overrides ADD COLUMN act BIGINT NOT NULL DEFAULT 0;

-- What the customers of an act had before it, for its undo; number is the act's.
CREATE TABLE stint_before (
  number BIGINT NOT NULL,
  rule VARCHAR(64) NOT NULL,
  client_key {{key}} NOT NULL,
  action SMALLINT NOT NULL,
  limits TEXT NOT NULL,
  expires BIGINT NOT NULL,
  act BIGINT NOT NULL,
  PRIMARY KEY (number, rule, client_key)
){{text}};
