// Package rulesdb keeps rules, and customers' own limits, in a database:
// SQLite, PostgreSQL, MySQL or MariaDB.
//
// Every document of rules that is published is a revision: a row that is never
// changed. Overrides and plans are rows by themselves. One row of the database
// holds the numbers of the last revision and the last change; each writing
// transaction updates it, so that numbers have no gaps and are in the order of
// the commits. A node asks for that row, reads what is new in one transaction,
// and is never asked by a request.
//
// A [DB] is a [rulesource.Source]. Its methods may be called from many
// goroutines at once. Each call to the database has a time limit, so that a
// database that stands still is an error and not a wait without end.
package rulesdb
