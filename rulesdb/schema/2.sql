-- A text of chance for each of the newest versions, by epoch + revision +
-- change_number. A restored database that is changed again gives its versions
-- other marks: who holds one from before sees that it is of another history.
ALTER TABLE stint_state ADD COLUMN mark VARCHAR(32) NOT NULL DEFAULT '';

CREATE TABLE stint_marks (
  number BIGINT NOT NULL PRIMARY KEY,
  mark VARCHAR(32) NOT NULL
){{text}};
