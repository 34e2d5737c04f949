package rulesdb

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver named sqlite
)

// glance is how often a SQLite file is looked at for changes: a read of a
// counter in shared memory.
const glance = 50 * time.Millisecond

var sqlite = &dialect{
	name:     "sqlite",
	types:    strings.NewReplacer("{{document}}", "BLOB", "{{key}}", "BLOB"),
	micros:   "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
	upsert:   conflictUpdate,
	value:    excluded,
	snapshot: &sql.TxOptions{ReadOnly: true},
	changed:  watchDataVersion,
}

// openSQLite opens sqlite:PATH; the file is made if it is not there.
func openSQLite(rest string) (*sql.DB, error) {
	path, query, _ := strings.Cut(rest, "?")
	if path == "" {
		return nil, errors.New("write sqlite:FILE, such as sqlite:stint.db")
	}
	if query != "" {
		return nil, errors.New("sqlite takes no parameters: write sqlite:FILE")
	}
	values := url.Values{
		"_pragma": {"journal_mode(WAL)", "busy_timeout(5000)", "synchronous(FULL)"},
		"_txlock": {"immediate"},
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+values.Encode())
	if err != nil {
		return nil, err
	}
	return db, nil
}

// watchDataVersion looks at the data version of the file, which changes when
// another connection, of this process or another, commits.
func watchDataVersion(ctx context.Context, db *DB) <-chan struct{} {
	out := make(chan struct{}, 1)
	go func() {
		conn, err := db.sql.Conn(ctx)
		if err != nil {
			return // the poll goes on
		}
		defer conn.Close()
		var last int64
		for tick := time.NewTicker(glance); ; {
			var now int64
			if conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&now) == nil && now != last {
				last = now
				poke(out)
			}
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	return out
}

// poke sends unless somebody has not yet read the last one.
func poke(out chan<- struct{}) {
	select {
	case out <- struct{}{}:
	default:
	}
}

// Backup writes a copy of a SQLite database into a new file, while it is in use.
// Other databases have programs of their own for it.
func (db *DB) Backup(ctx context.Context, file string) error {
	if db.d != sqlite {
		return errors.New("a backup of a " + db.d.name + " database: its own programs make it")
	}
	_, err := db.sql.ExecContext(ctx, "VACUUM INTO ?", file)
	return db.failed(err)
}
