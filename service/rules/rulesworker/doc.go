// Package rulesworker copies rules and customers' own limits from a database to a Redis or Valkey,
// or to a directory, where nodes read them. The database then has one reader, however many nodes
// there are.
//
// Several workers may run. One holds a lease in the database and works; if it dies, another takes
// over within 5 s. If two believe that they lead, for example because one hung for a while, the
// target itself refuses a version that does not follow what it holds.
package rulesworker
