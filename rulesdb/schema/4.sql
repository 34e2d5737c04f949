-- Nothing reads or writes it any more.
ALTER TABLE stint_nodes ADD COLUMN address VARCHAR(255) NOT NULL DEFAULT '';
