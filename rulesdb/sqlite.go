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

// glance is how often a SQLite file is looked at for changes: a read of a
// counter in shared memory.
const glance = 50 * time.Millisecond

// lockedFor is how long a statement, or opening a connection, waits for a file
// that another connection has locked.
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
		"_pragma": {"journal_mode(WAL)", fmt.Sprintf("busy_timeout(%d)", lockedFor.Milliseconds()), "synchronous(FULL)"},
		"_txlock": {"immediate"},
	}
	connector, err := driversqlite.NewConnector("file:" + (&url.URL{Path: path}).EscapedPath() + "?" + values.Encode())
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(patient{connector})
	// A connection that is kept would go on reading a file that has been replaced,
	// as by a backup that is moved to its place.
	db.SetMaxIdleConns(-1)
	return db, nil
}

// patient opens connections to a file that may be locked. A backup is not in WAL
// mode yet: the first connection to it changes that. While another one changes or
// writes it, SQLite refuses the change at once, whatever busy_timeout is.
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

// codeOf returns the primary code of an error of SQLite; 0 for others.
func codeOf(err error) int {
	if e, ok := errors.AsType[*driversqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

// watchDataVersion looks at the data version of the file, which changes when
// another connection, of this process or another, commits, and at whether the
// file is still the one of that name.
func watchDataVersion(ctx context.Context, db *DB) {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for ctx.Err() == nil {
		db.bell.Ring()
		watchFile(ctx, db, tick)
	}
}

// watchFile is watchDataVersion for one file: it returns when another one has
// its name, or ctx has ended.
func watchFile(ctx context.Context, db *DB, tick *time.Ticker) {
	path := strings.TrimPrefix(db.where, "sqlite:")
	file, _ := os.Stat(path) // nil is another file than any
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

// Backup writes a copy of a SQLite database into a new file, while it is in use.
// Other databases have programs of their own for it.
func (db *DB) Backup(ctx context.Context, file string) error {
	if db.d != sqlite {
		return errors.New("a backup of a " + db.d.name + " database: its own programs make it")
	}
	_, err := db.sql.ExecContext(ctx, "VACUUM INTO ?", file)
	return db.failed(err)
}
