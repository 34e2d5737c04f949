-- MySQL, MariaDB, in the database stint, where stint_node is the user of servers
GRANT SELECT ON stint_schema TO stint_node;
GRANT SELECT ON stint_state TO stint_node;
GRANT SELECT ON stint_marks TO stint_node;
GRANT SELECT ON stint_revisions TO stint_node;
GRANT SELECT ON stint_overrides TO stint_node;
GRANT SELECT ON stint_plans TO stint_node;
GRANT SELECT ON stint_tokens TO stint_node;
GRANT SELECT, INSERT, UPDATE ON stint_nodes TO stint_node;
