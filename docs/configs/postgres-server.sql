-- PostgreSQL, where stint_node is the user of servers
GRANT USAGE ON SCHEMA public TO stint_node;
GRANT SELECT ON stint_schema, stint_state, stint_marks, stint_revisions, stint_overrides, stint_plans, stint_tokens TO stint_node;
GRANT SELECT, INSERT, UPDATE ON stint_nodes TO stint_node;
