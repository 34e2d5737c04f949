package rulesdb

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
)

// A dialect describes how one kind of database differs from the others.
type dialect struct {
	name string
	// types replaces {{document}} and {{key}} in the schema by types. It replaces {{text}} by what
	// a table needs to compare texts by their bytes and to hold all of Unicode.
	types *strings.Replacer
	// micros is an expression for the database's time, in microseconds since the Unix epoch.
	micros string
	// numbered is set where parameters are $1, $2 and so on instead of ?.
	numbered bool
	// upsert begins the clause of an INSERT that updates an existing row with the same key; value
	// names a column of the new row.
	upsert func(key string) string
	value  func(column string) string
	// ddlCommits is set where each statement of a migration commits on its own.
	ddlCommits bool
	// snapshot has the options of a transaction that reads one consistent state. writing has those
	// of a transaction that writes: it waits for the version row, whatever the database's default
	// is.
	snapshot, writing *sql.TxOptions
	// watch rings the bell when the database may have changed, until ctx ends. It is a hint, and
	// may miss changes.
	watch func(ctx context.Context, db *DB)
	// refused reports whether an error of a commit is the database's answer that it has not
	// committed.
	refused func(err error) bool
	// copyRows writes rows into a table faster than INSERT, all or none. It is nil where there is
	// nothing faster.
	copyRows func(ctx context.Context, db *DB, table string, columns []string, n int, row func(i int) []any) error
	// announce is a statement that a writing transaction runs before its commit; "" for none.
	announce string
}

// bind writes the parameters of a query, given as ?, as the dialect wants them.
func (d *dialect) bind(query string) string {
	if !d.numbered {
		return query
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(query, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		query = after
	}
}

// onConflict returns the end of an INSERT that replaces columns of an existing row.
func (d *dialect) onConflict(key string, columns ...string) string {
	sets := make([]string, len(columns))
	for i, c := range columns {
		sets[i] = c + " = " + d.value(c)
	}
	return d.upsert(key) + strings.Join(sets, ", ")
}

func conflictUpdate(key string) string { return " ON CONFLICT (" + key + ") DO UPDATE SET " }

func excluded(column string) string { return "excluded." + column }
