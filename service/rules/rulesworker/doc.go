// Package rulesworker brings rules and customers' own limits out of a database to
// where nodes read them: a Redis or Valkey, or a directory. The database sees one
// reader then, however many nodes there are.
//
// Several workers may run: one has a lease in the database and works, and another
// takes over within 5 s when it is gone. Should two believe that they lead, as
// when one was stopped for a while, the target itself refuses what does not follow
// what it holds.
package rulesworker
