-- Where operators ask the node; '' if it has told nobody.
ALTER TABLE stint_nodes ADD COLUMN address VARCHAR(255) NOT NULL DEFAULT '';
