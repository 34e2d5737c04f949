// Package rulesredis keeps rules and customers' own limits in Redis or Valkey. A worker publishes
// there what a database holds, and nodes read it.
//
// Its keys, after the prefix of the URL, are all in one slot:
//
//	{rules}:head         what is published, as JSON: a [head]
//	{rules}:list:RANDOM  overrides and plans, as blocks; changes are appended
//	{rules}:doc:HASH     a document of rules
//	{rules}:clock        how far the database's clock is ahead of this server's
//	{rules}:nodes        what each node reports of itself
//
// A script publishes: it replaces the head only if it is still the one that the worker has read, so
// that a worker that hung, and has been succeeded, publishes nothing older. The keys that a head
// names do not change, except that blocks are appended after those that it counts. So readers get a
// version as a whole or not at all. The keys of a head that was replaced or never published expire.
package rulesredis
