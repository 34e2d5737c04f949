-- PostgreSQL, where stint_worker is the user of workers and has what stint_node has
GRANT SELECT, INSERT, UPDATE ON stint_leases TO stint_worker;
GRANT SELECT, INSERT, DELETE ON stint_audit TO stint_worker;
GRANT UPDATE ON stint_state TO stint_worker;
GRANT SELECT, DELETE ON stint_staged, stint_before TO stint_worker;
GRANT DELETE ON stint_revisions, stint_overrides, stint_plans, stint_tokens, stint_nodes TO stint_worker;
