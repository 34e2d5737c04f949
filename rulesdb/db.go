package rulesdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stint-dev/stint/internal/bell"
	"github.com/stint-dev/stint/rulesource"
)

const (
	dialTimeout = 5 * time.Second
	// callTimeout bounds one statement, and the time between two rows of a long answer.
	callTimeout = 10 * time.Second
	// documentTimeout bounds calls that carry a document, of up to 32 MiB.
	documentTimeout = time.Minute
)

// Options are the options of a database. The zero value suits most programs.
type Options struct {
	// PasswordFile is a file with the password, if set. It is read at each connect, so that it may
	// be changed while the program runs.
	PasswordFile string
	// Poll is the longest time between two reads of the version. They happen also while the
	// database announces changes. Each interval is shortened by up to a fifth at random. The
	// default value is 5 s, or 1 s for MySQL, which announces no changes.
	Poll time.Duration
	// Node is this program's name in the table of nodes. The default value is
	// the host's name.
	Node string
}

// A DB is a database of rules. Make one with [Open].
type DB struct {
	sql      *sql.DB
	d        *dialect
	o        Options
	where    string
	postgres *pgx.ConnConfig // for listening; nil for other databases
	password func() (string, error)
	bell     bell.Bell // rings when there may be a new version
	onWrite  atomic.Pointer[func(context.Context, rulesource.Version)]
}

// Open opens the database of a URL:
//
//	sqlite:stint.db
//	postgres://user@host:5432/database?sslmode=verify-full&sslrootcert=ca.pem
//	mysql://user@host:3306/database?tls=true&ssl-ca=ca.pem
//
// MySQL and MariaDB accept tls=true or tls=skip-verify; ssl-ca, ssl-cert and ssl-key, which are
// files of certificates and imply tls=true; and socket, the path of a Unix socket. PostgreSQL
// accepts the parameters of libpq.
//
// A SQLite file is created with its schema. Other databases get their schema from [DB.Migrate].
// Open does not connect to them, so that a node can start while the database is down; it fails only
// where no later attempt could succeed.
func Open(text string, o Options) (*DB, error) {
	scheme, rest, _ := strings.Cut(text, ":")
	db := &DB{o: o}
	if o.PasswordFile != "" {
		db.password = passwordOf(o.PasswordFile)
	}
	if db.o.Node == "" {
		db.o.Node, _ = os.Hostname() // the name is only for people, so an error is ignored
	}
	var err error
	switch scheme {
	case "sqlite":
		db.d, db.where = sqlite, "sqlite:"+rest
		db.sql, err = openSQLite(rest)
	case "postgres", "postgresql":
		db.d, db.where = postgres, seen(text)
		db.sql, db.postgres, err = openPostgres(text, db.password)
	case "mysql", "mariadb":
		u, parseErr := url.Parse(text)
		if parseErr != nil {
			return nil, errors.New("this is no URL: write mysql://user@host:3306/database")
		}
		db.d, db.where = mySQL, seen(text)
		db.sql, err = openMySQL(u, db.password)
	default:
		if strings.ContainsAny(scheme, " =@/") { // text may hold a password
			return nil, errors.New("this is no URL of a database: sqlite:FILE, postgres://…, mysql://…")
		}
		return nil, fmt.Errorf("%q is no kind of database: sqlite:FILE, postgres://…, mysql://…", scheme)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", db.where, hideURL(err, text))
	}
	if db.o.Poll <= 0 {
		db.o.Poll = 5 * time.Second
		if db.d == mySQL {
			db.o.Poll = time.Second
		}
	}
	db.sql.SetMaxOpenConns(8)
	db.sql.SetConnMaxIdleTime(time.Minute)
	if db.d == sqlite {
		if _, _, err := db.Migrate(context.Background()); err != nil {
			return nil, errors.Join(err, db.sql.Close())
		}
	}
	return db, nil
}

// String returns where the database is, without its user, password and parameters.
func (db *DB) String() string { return db.where }

// OnWrite makes every write of this DB that creates a version call f with the version, before the
// writer's call returns. It is for a node that follows the database to which it writes.
func (db *DB) OnWrite(f func(ctx context.Context, v rulesource.Version)) { db.onWrite.Store(&f) }

// Close closes all connections and ends every Wait.
func (db *DB) Close() error {
	db.bell.Close()
	return db.sql.Close()
}

// seen returns the parts of a URL that may be shown.
func seen(text string) string {
	u, err := url.Parse(text)
	if err != nil || strings.ContainsRune(u.Path+u.Fragment, '@') || u.User == nil && strings.ContainsRune(u.RawQuery, '@') {
		// Malformed: a #, ? or / in the password has ended the host.
		scheme, _, _ := strings.Cut(text, ":")
		return scheme
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// hideURL removes a URL, which may hold a password, from an error.
func hideURL(err error, text string) error {
	if err == nil || !strings.Contains(err.Error(), text) {
		var parse *pgconn.ParseConfigError
		if errors.As(err, &parse) {
			return errors.New("the URL cannot be read: write postgres://user@host:5432/database?sslmode=verify-full")
		}
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), text, seen(text)))
}

// passwordOf returns a function that reads a password from a file, without the newline at its end.
func passwordOf(file string) func() (string, error) {
	return func() (string, error) {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("the password's file: %w", err)
		}
		return strings.TrimRight(string(data), "\r\n"), nil
	}
}

// micros returns a time as the database stores it; the zero time is 0.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// lastMoment is the last time that JSON can represent.
var lastMoment = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// moment is the inverse of micros. Other programs may write values that JSON cannot represent; it
// returns the nearest time then.
func moment(us int64) time.Time {
	switch {
	case us == 0:
		return time.Time{}
	case us > lastMoment.UnixMicro():
		return lastMoment
	}
	return time.UnixMicro(max(us, time.Time{}.UnixMicro()+1)).UTC()
}
