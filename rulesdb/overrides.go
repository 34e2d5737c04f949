package rulesdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stint-dev/stint/rulesource"
)

// The actions of an override, as the table stores them.
const (
	actRemoved = iota
	actLimits
	actUnlimited
	actBlock
)

// CheckOverride refuses an override that a row cannot hold. The caller checks whether the limits
// can be read, since that needs the rules.
func CheckOverride(o *rulesource.Override) error {
	ways := 0
	for _, set := range []bool{len(o.Limits) > 0, o.Unlimited, o.Block} {
		if set {
			ways++
		}
	}
	switch {
	case o.Rule == "" || len(o.Rule) > 64:
		return refuse("rule: %d bytes: from 1 to 64", len(o.Rule))
	case len(o.Key) > 512:
		return refuse("key: %d bytes: at most 512", len(o.Key))
	case ways != 1 && !o.Removed:
		return refuse("an override has limits, or is unlimited, or a block: one of these")
	case len(strings.Join(o.Limits, "\n")) > 4000:
		return refuse("limits: more than 4,000 bytes")
	}
	for _, l := range o.Limits {
		if err := checkLine("limit", l, 4000); err != nil {
			return err
		}
	}
	return errors.Join(checkName("rule", o.Rule, 64), checkLine("reason", o.Reason, 1000), checkLine("author", o.Author, 255))
}

// SetOverride sets an override, or removes it if it is Removed. It returns the override before,
// Removed if there was none, and the new one. With lasts above 0 the override ends that long after
// now, by the database's clock; 0 is for good.
func (db *DB) SetOverride(ctx context.Context, o rulesource.Override, lasts time.Duration) (was, now rulesource.Override, err error) {
	if err := CheckReason(o.Reason); err != nil {
		return was, now, err
	}
	return db.SetOverrideIf(ctx, o, lasts, func(rulesource.Override) error { return nil })
}

// SetOverrideIf is [DB.SetOverride] on a condition: it passes the present override, Removed if
// there is none, to may. If may returns an error, SetOverrideIf writes nothing and returns that
// error. No other writer can come between.
func (db *DB) SetOverrideIf(ctx context.Context, o rulesource.Override, lasts time.Duration, may func(held rulesource.Override) error) (was, now rulesource.Override, err error) {
	if err := CheckOverride(&o); err != nil {
		return was, now, err
	}
	if lasts < 0 {
		return was, now, refuse("an override for %v: longer than 0s", lasts)
	}
	err = db.write(ctx, func(ctx context.Context, w *write) (err error) {
		if was, err = db.override(ctx, w.tx, o.Rule, o.Key, w.at); err != nil {
			return err
		}
		if err := may(was); err != nil {
			return err
		}
		if o.Removed && was.Removed {
			return fmt.Errorf("an override or block of this key under rule %s: %w", o.Rule, ErrNotFound)
		}
		if lasts > 0 {
			o.Expires = moment(w.at).Add(lasts)
		}
		w.state.change++
		now = o
		now.Created, now.Change, now.Act = moment(w.at), w.state.change, w.state.audit+1
		if err := errors.Join(w.remember(ctx, &was), w.putOverride(ctx, &now)); err != nil {
			return err
		}
		return w.audit(ctx, Change(&was, &now))
	})
	return was, now, err
}

// putOverride writes a row with the number of the change of w.
func (w *write) putOverride(ctx context.Context, o *rulesource.Override) error {
	return w.db.run(ctx, w.tx, "INSERT INTO stint_overrides ("+overrideColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"+w.db.d.onConflict("rule, client_key", putColumns...),
		o.Rule, []byte(o.Key), actionOf(o), strings.Join(o.Limits, "\n"), w.at, micros(o.Expires), o.Reason, o.Author, w.state.change, o.Act)
}

func actionOf(o *rulesource.Override) int {
	switch {
	case o.Removed:
		return actRemoved
	case o.Unlimited:
		return actUnlimited
	case o.Block:
		return actBlock
	}
	return actLimits
}

const overrideColumns = "rule, client_key, action, limits, created, expires, reason, author, change_number, act"

// putColumns are the columns that a new override replaces.
var putColumns = strings.Split(overrideColumns, ", ")[2:]

// scanOverride reads a row of overrideColumns.
func scanOverride(row scanner) (o rulesource.Override, err error) {
	var key []byte
	var limits string
	var action, created, expires, change, act whole
	if err := row.Scan(&o.Rule, &key, &action, &limits, &created, &expires, &o.Reason, &o.Author, &change, &act); err != nil {
		return o, err
	}
	o.Key, o.Created, o.Expires, o.Change, o.Act = string(key), moment(created.n), moment(expires.n), change.n, act.n
	if err := errors.Join(action.err, expires.err); err != nil { // nodes leave the override out, and report it
		o.Limits = []string{strings.ReplaceAll(err.Error(), "\n", "; ")}
		return o, nil
	}
	switch action.n {
	case actLimits:
		o.Limits = strings.Split(limits, "\n")
	case actUnlimited:
		o.Unlimited = true
	case actBlock:
		o.Block = true
	case actRemoved:
		o.Removed = true
	default: // nodes leave the override out, and report it
		o.Limits = []string{fmt.Sprintf("an act of number %d, which a later version of stint knows", action.n)}
	}
	return o, nil
}

// A whole is a column of whole numbers. SQLite accepts any value there, so another program may have
// written text; that must not keep the other rows from being read.
type whole struct {
	n   int64
	err error
}

// Scan implements [sql.Scanner].
func (w *whole) Scan(value any) error {
	var n sql.NullInt64
	w.err = n.Scan(value)
	w.n = n.Int64
	return nil
}

// override reads one override as it stands at a time; Removed if there is none.
func (db *DB) override(ctx context.Context, from reader, rule, key string, at int64) (rulesource.Override, error) {
	o, err := scanOverride(from.QueryRowContext(ctx, db.d.bind("SELECT "+overrideColumns+" FROM stint_overrides WHERE rule = ? AND client_key = ?"), rule, []byte(key)))
	if errors.Is(err, sql.ErrNoRows) || err == nil && !o.Expires.IsZero() && micros(o.Expires) <= at {
		return rulesource.Override{Rule: rule, Key: key, Removed: true, Act: o.Act}, nil
	}
	return o, err
}

// Override returns the override of a key under a rule, or [ErrNotFound].
func (db *DB) Override(ctx context.Context, rule, key string) (rulesource.Override, error) {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	var at int64
	if err := db.sql.QueryRowContext(ctx, "SELECT "+db.d.micros).Scan(&at); err != nil {
		return rulesource.Override{}, db.failed(err)
	}
	o, err := db.override(ctx, db.sql, rule, key, at)
	if err == nil && o.Removed {
		err = fmt.Errorf("an override or block of this key under rule %s: %w", rule, ErrNotFound)
	}
	return o, db.failed(err)
}

// A Page selects overrides to list: those of a rule, or of all rules, whose key begins with Prefix,
// after the last override of the page before.
type Page struct {
	Rule, Prefix        string
	AfterRule, AfterKey string
	// N is the most overrides to list. The default value is 100.
	N int
}

// Overrides returns a page of overrides that are in force, in the order of
// rules and keys.
func (db *DB) Overrides(ctx context.Context, p Page) ([]rulesource.Override, error) {
	if p.N <= 0 {
		p.N = 100
	}
	query, args := db.overrides(p)
	return list(ctx, db, scanOverride, query+" LIMIT ?", append(args, p.N)...)
}

// EachOverride passes all overrides that are in force at one moment to take, in the order of
// [DB.Overrides], until take returns an error. It ignores Page.N. Until it returns, the database
// keeps the state of that moment.
func (db *DB) EachOverride(ctx context.Context, p Page, take func(rulesource.Override) error) error {
	ctx, dog := watchdog(ctx, documentTimeout)
	defer dog.stop()
	tx, err := db.sql.BeginTx(ctx, db.d.snapshot)
	if err != nil {
		return db.failed(dog.why(err))
	}
	defer func() { _ = tx.Rollback() }() // the transaction has only read
	query, args := db.overrides(p)
	return db.failed(dog.why(each(ctx, tx, scanOverride, func(o rulesource.Override) error {
		err := take(o)
		if dog.alive(); err != nil {
			dog.cancel(err) // without this, closing would read the remaining rows
		}
		return err
	}, db.d.bind(query), args...)))
}

// overrides returns the query of a page without its end.
func (db *DB) overrides(p Page) (query string, args []any) {
	query = "SELECT " + overrideColumns + " FROM stint_overrides WHERE action <> 0 AND (expires = 0 OR expires > " + db.d.micros + ")"
	if p.Rule != "" {
		query += " AND rule = ?"
		args = append(args, p.Rule)
	}
	if p.AfterRule != "" {
		query += " AND rule >= ? AND (rule, client_key) > (?, ?)" // MySQL uses its index only for the first condition
		args = append(args, p.AfterRule, p.AfterRule, []byte(p.AfterKey))
	}
	if p.Prefix != "" {
		query += " AND client_key >= ?"
		args = append(args, []byte(p.Prefix))
		if end := endOf(p.Prefix); end != "" {
			query += " AND client_key < ?"
			args = append(args, []byte(end))
		}
	}
	return query + " ORDER BY rule, client_key", args
}

// endOf returns the first text after all texts with a prefix, or "" if there is none.
func endOf(prefix string) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return prefix[:i] + string([]byte{prefix[i] + 1})
		}
	}
	return ""
}

// Describe says what an override does, as the audit records it; "" for one that is removed.
func Describe(o *rulesource.Override) string {
	var text string
	switch actionOf(o) {
	case actRemoved:
		return ""
	case actUnlimited:
		text = "unlimited"
	case actBlock:
		text = "block"
	default:
		text = strings.Join(o.Limits, ", ")
	}
	if !o.Expires.IsZero() {
		text += " until " + o.Expires.Format(time.RFC3339)
	}
	return text
}
