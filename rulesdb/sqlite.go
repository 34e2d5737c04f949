package rulesdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	driversqlite "modernc.org/sqlite"

	"github.com/stint-dev/stint/internal/aside"
)

// glance is how often a SQLite file is checked for changes. Each check reads a counter in shared
// memory.
const glance = 50 * time.Millisecond

// lockedFor is how long a statement, or opening a connection, waits for a file that another
// connection has locked.
const lockedFor = 5 * time.Second

var sqlite = &dialect{
	name:     "sqlite",
	types:    strings.NewReplacer("{{document}}", "BLOB", "{{key}}", "BLOB", "{{text}}", ""),
	micros:   "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
	upsert:   conflictUpdate,
	value:    excluded,
	snapshot: &sql.TxOptions{ReadOnly: true},
	watch:    watchDataVersion,
	refused:  func(err error) bool { return codeOf(err) != ioError },
}

// openSQLite opens sqlite:PATH, and creates the file if it does not exist.
func openSQLite(rest string) (*sql.DB, error) {
	path, query, _ := strings.Cut(rest, "?")
	if path == "" {
		return nil, errors.New("write sqlite:FILE, such as sqlite:stint.db")
	}
	if query != "" {
		return nil, errors.New("sqlite takes no parameters: write sqlite:FILE")
	}
	values := url.Values{
		"_pragma": {"journal_mode(WAL)", fmt.Sprintf("busy_timeout(%d)", lockedFor.Milliseconds()), "synchronous(FULL)"},
		"_txlock": {"immediate"},
	}
	connector, err := driversqlite.NewConnector("file:" + (&url.URL{Path: path}).EscapedPath() + "?" + values.Encode())
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(patient{connector})
	// A pooled connection would go on reading a file after it has been replaced, for example by a
	// backup moved to its path.
	db.SetMaxIdleConns(-1)
	return db, nil
}

// patient opens connections to a file that may be locked. The first connection to a backup switches
// it to WAL mode. While another connection switches it or writes, SQLite refuses at once, whatever
// busy_timeout is, so patient tries again.
type patient struct{ driver.Connector }

// Connect implements [driver.Connector].
func (p patient) Connect(ctx context.Context) (driver.Conn, error) {
	for end := time.Now().Add(lockedFor); ; {
		conn, err := p.Connector.Connect(ctx)
		if codeOf(err) != busy || ctx.Err() != nil || time.Now().After(end) {
			return conn, err
		}
		aside.Sleep(ctx, lockedFor/1000)
	}
}

const (
	busy       = 5  // SQLITE_BUSY
	readOnly   = 8  // SQLITE_READONLY
	ioError    = 10 // SQLITE_IOERR
	cannotOpen = 14 // SQLITE_CANTOPEN
)

// codeOf returns the primary code of an error of SQLite; 0 for other errors.
func codeOf(err error) int {
	if e, ok := errors.AsType[*driversqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

// watchDataVersion checks the data version of the file, which changes when any other connection
// commits, and whether the path still names the same file.
func watchDataVersion(ctx context.Context, db *DB) {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for ctx.Err() == nil {
		db.bell.Ring()
		watchFile(ctx, db, tick)
	}
}

// watchFile is watchDataVersion for one file. It returns when the path names another file, or ctx
// has ended.
func watchFile(ctx context.Context, db *DB, tick *time.Ticker) {
	path := strings.TrimPrefix(db.where, "sqlite:")
	file, _ := os.Stat(path) // after an error, nil differs from every file
	conn, err := db.sql.Conn(ctx)
	if err == nil {
		defer conn.Close()
	}
	for last := int64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var version int64
		if err == nil && conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&version) == nil && version != last {
			last = version
			db.bell.Ring()
		}
		if now, gone := os.Stat(path); gone == nil && !os.SameFile(file, now) {
			return
		}
	}
}

// Backup copies a SQLite database that is in use to a new file. Other databases have programs of
// their own for that.
func (db *DB) Backup(ctx context.Context, file string) error {
	if db.d != sqlite {
		return errors.New("a backup of a " + db.d.name + " database: its own programs make it")
	}
	_, err := db.sql.ExecContext(ctx, "VACUUM INTO ?", file)
	return db.failed(err)
}
