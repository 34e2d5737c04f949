// Package rulesdb keeps rules, and customers' own limits, in a database: SQLite, PostgreSQL, MySQL
// or MariaDB.
//
// Every published document of rules is a revision: a row that never changes. Each override and each
// plan is a row of its own. One row, the version row, holds the numbers of the last revision and
// the last change. Each writing transaction updates it, so that numbers have no gaps and are in the
// order of the commits. A node polls that row and reads what is new in one transaction; requests
// never wait for it.
//
// A [DB] is a [rulesource.Source]. Its methods may be called from many goroutines at once. Each
// call to the database has a time limit, so that a database that hangs is an error and not an
// endless wait.
package rulesdb
