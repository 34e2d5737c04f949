package rulesdb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A migration brings the schema from the version before to its version. oldest is the oldest
// version whose programs still work on the new schema. That is at least the version before, so that
// a rolling upgrade works.
type migration struct {
	text   string
	oldest int
}

//go:embed schema
var schemaTexts embed.FS

var migrations = []migration{
	{read("schema/1.sql"), 1},
	{read("schema/2.sql"), 1},
	{read("schema/3.sql"), 1},
	{read("schema/4.sql"), 1},
	{read("schema/5.sql"), 1},
}

func read(name string) string {
	text, err := schemaTexts.ReadFile(name)
	if err != nil {
		panic(err) // the file is embedded above
	}
	return string(text)
}

// A SchemaError says that this program cannot work on the schema of a database, and what to do.
type SchemaError struct {
	Where           string
	Has, Wants      int
	OldestSupported int
}

// Error names the command to run.
func (e *SchemaError) Error() string {
	switch {
	case e.Has == 0:
		return fmt.Sprintf("%s has no tables of stint: run stint rules migrate --rules URL", e.Where)
	case e.Has < e.Wants:
		return fmt.Sprintf("%s has version %d of the schema, this program needs %d: run stint rules migrate --rules URL", e.Where, e.Has, e.Wants)
	}
	return fmt.Sprintf("%s has version %d of the schema, for programs of version %d and later, this one is of %d: upgrade stint",
		e.Where, e.Has, e.OldestSupported, e.Wants)
}

// Status is the state of a database.
type Status struct {
	// Schema is the version of the schema, 0 if there is none. Program is the version of this
	// program, and Oldest the oldest that may use the database.
	Schema, Program, Oldest int
	Identity                string
	Revision, Change        int64
	Overrides, Plans        int64
}

// Status returns the state of the database.
func (db *DB) Status(ctx context.Context) (Status, error) {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	s := Status{Program: len(migrations)}
	var err error
	if s.Schema, s.Oldest, err = db.schema(ctx); err != nil || s.Schema == 0 {
		return s, db.failed(err)
	}
	v, err := db.version(ctx, db.sql)
	if err != nil {
		return s, db.failed(err)
	}
	s.Identity, s.Revision, s.Change = v.Identity, v.Revision, v.Change
	if err = db.sql.QueryRowContext(ctx, "SELECT count(*) FROM stint_overrides WHERE action <> 0").Scan(&s.Overrides); err == nil {
		err = db.sql.QueryRowContext(ctx, "SELECT count(*) FROM stint_plans WHERE plan <> ''").Scan(&s.Plans)
	}
	return s, db.failed(err)
}

// schema returns the version of the schema, or 0 if there is none.
func (db *DB) schema(ctx context.Context) (has, oldest int, err error) {
	if err := db.sql.PingContext(ctx); err != nil {
		return 0, 0, err
	}
	err = db.sql.QueryRowContext(ctx, "SELECT version, oldest FROM stint_schema").Scan(&has, &oldest)
	if err == nil || ctx.Err() != nil {
		return has, oldest, err
	}
	if !noTable(err) {
		return 0, 0, err
	}
	return 0, 0, nil
}

// noTable reports whether an error says that a table does not exist, or has no row.
func noTable(err error) bool {
	text := err.Error()
	return errors.Is(err, sql.ErrNoRows) || strings.Contains(text, "no such table") ||
		strings.Contains(text, "42P01") || strings.Contains(text, "Error 1146")
}

// CheckSchema returns a [*SchemaError] if this program cannot work on the
// database's schema.
func (db *DB) CheckSchema(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	has, oldest, err := db.schema(ctx)
	if err != nil {
		return db.failed(err)
	}
	if has < len(migrations) || oldest > len(migrations) {
		return &SchemaError{db.where, has, len(migrations), oldest}
	}
	return nil
}

// Migrate brings the schema to this program's version, and returns the versions before and after.
// It does not change a newer schema. In SQLite and PostgreSQL a failed migration leaves no trace.
// In MySQL each statement commits on its own; run Migrate again, and it skips what exists.
func (db *DB) Migrate(ctx context.Context) (from, to int, err error) {
	from, oldest, err := db.schema(ctx)
	if err != nil {
		return 0, 0, db.failed(err)
	}
	if oldest > len(migrations) {
		return from, from, &SchemaError{db.where, from, len(migrations), oldest}
	}
	if from >= len(migrations) {
		return from, from, nil
	}
	tx, err := db.sql.BeginTx(ctx, db.d.writing)
	if err != nil {
		return from, from, db.failed(err)
	}
	defer func() { _ = tx.Rollback() }() // without effect after a commit
	if db.d == postgres {
		if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(hashtext('stint'))"); err != nil {
			return from, from, db.failed(err)
		}
	}
	if from, err = db.migrate(ctx, tx); err != nil {
		return from, from, db.failed(fmt.Errorf("migrating: %w", err))
	}
	if err := tx.Commit(); err != nil {
		return from, from, db.failed(err)
	}
	return from, len(migrations), nil
}

// migrate runs the missing migrations. It reads the version again, since another program may have
// been faster.
func (db *DB) migrate(ctx context.Context, tx *sql.Tx) (from int, err error) {
	if err := db.run(ctx, tx, "CREATE TABLE IF NOT EXISTS stint_schema (id INT NOT NULL PRIMARY KEY, version INT NOT NULL, oldest INT NOT NULL)"); err != nil {
		return 0, err
	}
	switch err := tx.QueryRowContext(ctx, "SELECT version FROM stint_schema").Scan(&from); {
	case errors.Is(err, sql.ErrNoRows):
		if err := db.run(ctx, tx, "INSERT INTO stint_schema (id, version, oldest) VALUES (1, 0, 0)"); err != nil {
			return 0, err
		}
	case err != nil:
		return 0, err
	}
	for v := from + 1; v <= len(migrations); v++ {
		m := migrations[v-1]
		for _, statement := range statements(db.d.types.Replace(m.text)) {
			if err := db.run(ctx, tx, statement); err != nil && !(db.d.ddlCommits && isThere(err)) {
				return from, fmt.Errorf("to version %d: %w", v, err)
			}
		}
		if v == 1 {
			if err := db.run(ctx, tx, "INSERT INTO stint_state (id, identity, epoch, revision, change_number, audit_number, oldest_change) VALUES (1, ?, 0, 0, 0, 0, 0)", rand.Text()); err != nil && !(db.d.ddlCommits && isThere(err)) {
				return from, err
			}
		}
		if err := db.run(ctx, tx, "UPDATE stint_schema SET version = ?, oldest = ?", v, m.oldest); err != nil {
			return from, err
		}
	}
	return from, nil
}

// isThere reports whether an error says that a table, index or row exists already, left by a
// migration in MySQL that failed half-way.
func isThere(err error) bool {
	codes := []string{"Error 1050", "Error 1061", "Error 1062", "Error 1060"}
	return slices.ContainsFunc(codes, func(code string) bool { return strings.Contains(err.Error(), code) })
}

// statements splits a schema into its statements, without comments.
func statements(text string) []string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			kept = append(kept, line)
		}
	}
	var out []string
	for s := range strings.SplitSeq(strings.Join(kept, ""), ";") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// run executes a statement of a transaction.
func (db *DB) run(ctx context.Context, tx *sql.Tx, query string, args ...any) error {
	_, err := tx.ExecContext(ctx, db.d.bind(query), args...)
	return err
}

// failed adds the name of the database to an error.
func (db *DB) failed(err error) error {
	if err == nil {
		return nil
	}
	if code := codeOf(err); code == readOnly || code == cannotOpen {
		return fmt.Errorf("%s: %w: its directory must be there, and this user able to write the file and beside it, also to read", db.where, err)
	}
	return fmt.Errorf("%s: %w", db.where, err)
}
