package rulesdb

import (
	"context"
	"time"

	"github.com/stint-dev/stint/rulesource"
)

// A Node is what a program that follows the rules last said of itself.
type Node struct {
	Name    string
	Version rulesource.Version
	Hash    string
	// Since is when it took that version, Seen when it last wrote.
	Since, Seen time.Time
	// Error is why it does not hold the newest version, or "".
	Error string
}

// Report writes this node's row. It is one small statement and takes no number.
func (db *DB) Report(ctx context.Context, n Node) error {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	if n.Name == "" {
		n.Name = db.o.Node
	}
	_, err := db.sql.ExecContext(ctx, db.d.bind("INSERT INTO stint_nodes (node, revision, change_number, hash, since, seen, error) VALUES (?, ?, ?, ?, ?, "+db.d.micros+", ?)"+
		db.d.onConflict("node", "revision", "change_number", "hash", "since", "seen", "error")),
		cut(n.Name, 255), n.Version.Revision, n.Version.Change, n.Hash, micros(n.Since), cut(n.Error, 4000))
	return db.failed(err)
}

// Nodes returns the nodes that wrote within a time, by name; 0 is all.
func (db *DB) Nodes(ctx context.Context, within time.Duration) ([]Node, error) {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	query, args := "SELECT node, revision, change_number, hash, since, seen, error FROM stint_nodes", []any(nil)
	if within > 0 {
		query += " WHERE seen > " + db.d.micros + " - ?"
		args = append(args, within.Microseconds())
	}
	rows, err := db.sql.QueryContext(ctx, db.d.bind(query+" ORDER BY node"), args...)
	if err != nil {
		return nil, db.failed(err)
	}
	defer rows.Close()
	var out []Node
	for rows.Next() {
		var n Node
		var since, seen int64
		if err := rows.Scan(&n.Name, &n.Version.Revision, &n.Version.Change, &n.Hash, &since, &seen, &n.Error); err != nil {
			return nil, db.failed(err)
		}
		n.Since, n.Seen = moment(since), moment(seen)
		out = append(out, n)
	}
	return out, db.failed(rows.Err())
}
