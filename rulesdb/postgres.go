package rulesdb

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/stint-dev/stint/internal/aside"
)

// channel is the channel on which writers notify nodes.
const channel = "stint_changed"

const (
	// pingEvery is how often a listening connection is tested, since waiting for a notification
	// would never notice that the other end is gone.
	pingEvery = 5 * time.Second
	// listenAgain is the least wait before a lost connection is opened again. As much is added at
	// random, so that a restart of the server does not meet all nodes at once.
	listenAgain = time.Second
)

var postgres = &dialect{
	name:     "postgres",
	types:    strings.NewReplacer("{{document}}", "BYTEA", "{{key}}", "BYTEA", "{{text}}", ""),
	micros:   "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)",
	numbered: true,
	upsert:   conflictUpdate,
	value:    excluded,
	snapshot: &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
	writing:  &sql.TxOptions{Isolation: sql.LevelReadCommitted},
	watch:    listen,
	refused: func(err error) bool {
		e, answered := errors.AsType[*pgconn.PgError](err)
		// A fatal error ends the connection, and leaves the result of the commit unknown.
		return answered && e.Severity == "ERROR" || errors.Is(err, pgx.ErrTxCommitRollback)
	},
	copyRows: copyRows,
	announce: "SELECT pg_notify('" + channel + "', '')",
}

// openPostgres opens a URL in the form of libpq.
func openPostgres(text string, password func() (string, error)) (*sql.DB, *pgx.ConnConfig, error) {
	c, err := pgx.ParseConfig(text)
	if err != nil {
		return nil, nil, err
	}
	c.ConnectTimeout = dialTimeout
	// Poolers in transaction mode do not support prepared statements.
	c.DefaultQueryExecMode = pgx.QueryExecModeExec
	var options []stdlib.OptionOpenDB
	if password != nil {
		options = append(options, stdlib.OptionBeforeConnect(func(_ context.Context, c *pgx.ConnConfig) (err error) {
			c.Password, err = password()
			return err
		}))
	}
	return stdlib.OpenDB(*c, options...), c, nil
}

func copyRows(ctx context.Context, db *DB, table string, columns []string, n int, row func(i int) []any) error {
	conn, err := db.sql.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() // returns it to the pool
	return conn.Raw(func(driver any) error {
		rows := pgx.CopyFromSlice(n, func(i int) ([]any, error) { return row(i), nil })
		_, err := driver.(*stdlib.Conn).Conn().CopyFrom(ctx, pgx.Identifier{table}, columns, rows)
		return err
	})
}

// listen waits for notifications on a connection of its own.
func listen(ctx context.Context, db *DB) {
	for ctx.Err() == nil {
		_ = listenOnce(ctx, db) // polling goes on meanwhile
		aside.Sleep(ctx, listenAgain+rand.N(listenAgain))
	}
}

// listenOnce listens until the connection is lost.
func listenOnce(ctx context.Context, db *DB) error {
	c := db.postgres.Copy()
	if db.password != nil {
		var err error
		if c.Password, err = db.password(); err != nil {
			return err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return err
	}
	defer func() {
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		_ = conn.Close(ctx) // the connection is lost, or no longer needed
	}()
	begin, stop := context.WithTimeout(ctx, pingEvery)
	_, err = conn.Exec(begin, "LISTEN "+channel)
	stop()
	if err != nil {
		return err
	}
	db.bell.Ring() // something may have changed before it listened
	for {
		wait, stop := context.WithTimeout(ctx, pingEvery)
		_, err := conn.WaitForNotification(wait)
		stop()
		switch {
		case err == nil:
			db.bell.Ring()
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case wait.Err() == nil:
			return err
		}
		ping, stop := context.WithTimeout(ctx, pingEvery)
		err = conn.Ping(ping)
		stop()
		if err != nil {
			return err
		}
	}
}
