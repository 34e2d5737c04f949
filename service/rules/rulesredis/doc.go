// Package rulesredis keeps rules and customers' own limits in Redis or Valkey,
// where a worker publishes what a database holds and nodes read it.
//
// These keys are of one slot, with a prefix of the URL:
//
//	{rules}:head         what is published, as JSON: a [head]
//	{rules}:list:RANDOM  overrides and plans, as blocks; changes are added to it
//	{rules}:doc:HASH     a document of rules
//	{rules}:clock        how far the database's clock is ahead of this server's
//	{rules}:nodes        what each node says of itself
//
// A script publishes: it replaces the head if it is still the one that the
// worker has read, so that a worker that was stopped, and has been succeeded,
// publishes nothing older. What a head names does not change but for blocks added
// behind those that it counts, so that readers have all of a version or nothing.
// The keys of a head that is gone, or never came, end by themselves.
package rulesredis
