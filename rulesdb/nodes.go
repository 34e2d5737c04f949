package rulesdb

import (
	"context"
	"strings"
	"time"

	"github.com/stint-dev/stint/rulesource"
)

// A Node is the last report of a program that follows the rules.
type Node struct {
	Name    string
	Version rulesource.Version
	Hash    string
	// Since is when the node took that version. Seen is when it last wrote.
	Since, Seen time.Time
	// Error says why it does not hold the newest version, or is empty.
	Error string
}

// mostBatch is how many rows one statement writes.
const mostBatch = 1000

// Report writes this node's row. It is one small statement and makes no version.
func (db *DB) Report(ctx context.Context, n Node) error {
	if n.Name == "" {
		n.Name = db.o.Node
	}
	return db.ReportAll(ctx, []Node{n})
}

// ReportAll writes the rows of nodes, as if each were seen now.
func (db *DB) ReportAll(ctx context.Context, nodes []Node) error {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	row := "(?, ?, ?, ?, ?, " + db.d.micros + ", ?)"
	for len(nodes) > 0 {
		n := min(len(nodes), mostBatch)
		var args []any
		for _, one := range nodes[:n] {
			args = append(args, cut(one.Name, 255), one.Version.Revision, one.Version.Change, one.Hash, micros(one.Since), cut(one.Error, 4000))
		}
		_, err := db.sql.ExecContext(ctx, db.d.bind("INSERT INTO stint_nodes (node, revision, change_number, hash, since, seen, error) VALUES "+
			strings.Repeat(row+", ", n-1)+row+
			db.d.onConflict("node", "revision", "change_number", "hash", "since", "seen", "error")), args...)
		if err != nil {
			return db.failed(err)
		}
		nodes = nodes[n:]
	}
	return nil
}

// Nodes returns the nodes that wrote within a time, by name. A time of 0 returns all.
func (db *DB) Nodes(ctx context.Context, within time.Duration) ([]Node, error) {
	query, args := "SELECT node, revision, change_number, hash, since, seen, error FROM stint_nodes", []any(nil)
	if within > 0 {
		query += " WHERE seen > " + db.d.micros + " - ?"
		args = append(args, within.Microseconds())
	}
	return list(ctx, db, func(row scanner) (n Node, err error) {
		var since, seen int64
		err = row.Scan(&n.Name, &n.Version.Revision, &n.Version.Change, &n.Hash, &since, &seen, &n.Error)
		n.Since, n.Seen = moment(since), moment(seen)
		return n, err
	}, query+" ORDER BY node", args...)
}
