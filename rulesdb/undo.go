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

// undoFor is how long the overrides before an act are kept, so that it can be undone.
const undoFor = 7 * 24 * time.Hour

// The names in the audit of acts on overrides, and of a load.
const (
	ActSet    = "override set"
	ActRemove = "override remove"
	ActLoad   = "overrides load"
)

// actName returns the name of the act that puts an override in force.
func actName(o *rulesource.Override) string {
	if o.Removed {
		return ActRemove
	}
	return ActSet
}

// Change returns the act, as the audit records it, that changes an override from was to now.
func Change(was, now *rulesource.Override) Act {
	return Act{Author: now.Author, Act: actName(now), Subject: fmt.Sprintf("%s %q", now.Rule, now.Key), Was: Describe(was), Now: Describe(now), Reason: now.Reason}
}

// Back returns the override that an undo of the act sets at a time. back is the override before the
// act. It keeps its end, so if that has passed, the result is Removed. The error is [ErrInput] if
// held is not the override that the act made.
func (d *AuditEntry) Back(held, back rulesource.Override, at time.Time) (rulesource.Override, error) {
	if !back.Expires.IsZero() && !back.Expires.After(at) {
		back.Removed = true
	}
	if back.Removed {
		back.Expires = time.Time{}
	}
	switch {
	case held.Act != d.Number && held.Removed:
		return back, refuse("act %d is not what holds any more: it was taken back, or removed later", d.Number)
	case held.Act != d.Number:
		return back, refuse("act %d is not what holds any more: it is %q now, which came later", d.Number, Describe(&held))
	case held.Removed && (back.Removed || d.Act.Act == ActSet):
		return back, refuse("act %d has ended by itself", d.Number)
	}
	return back, nil
}

// UndoOverrides undoes an act that set, removed or loaded overrides. Its customers get back the
// overrides from before, with their ends, unless their overrides were changed since. did says what
// was put back. The audit records the undo with [UndoOf] as its reason. The error is [ErrConflict]
// if the act has been undone before, and [ErrInput] if it cannot be undone.
func (db *DB) UndoOverrides(ctx context.Context, number int64, author string) (did string, err error) {
	ctx, dog := watchdog(ctx, documentTimeout)
	defer dog.stop()
	err = dog.why(db.writeTx(ctx, func(ctx context.Context, w *write) error {
		d, err := w.toUndo(ctx, number)
		if err != nil {
			return err
		}
		var act Act
		if d.Act.Act == ActLoad {
			act, err = w.undoLoad(ctx, d, author, dog)
		} else {
			act, err = w.undoOne(ctx, d, author)
		}
		if did = act.Now; err != nil {
			return err
		}
		return w.audit(ctx, act)
	}))
	return did, db.failed(err)
}

// toUndo returns an act that has not been undone.
func (w *write) toUndo(ctx context.Context, number int64) (d *AuditEntry, err error) {
	if err := w.notUndone(ctx, number); err != nil {
		return nil, err
	}
	d = new(AuditEntry)
	err = d.scan(w.tx.QueryRowContext(ctx, w.db.d.bind("SELECT "+auditColumns+" FROM stint_audit WHERE number = ?"), number))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, refuse("act %d is not in the audit", number)
	case err == nil && d.Undoes():
		return nil, refuse("act %d is an undo itself: set what it took back by hand", number)
	case err == nil && moment(w.at).Sub(d.At) > undoFor:
		return nil, refuse("act %d is older than %v: what was before it is not kept", number, undoFor)
	}
	return d, err
}

// notUndone returns an error if an act has been undone.
func (w *write) notUndone(ctx context.Context, number int64) error {
	var undone int
	err := w.tx.QueryRowContext(ctx, w.db.d.bind("SELECT count(*) FROM stint_audit WHERE number > ? AND reason = ?"), number, UndoOf(number)).Scan(&undone)
	if err == nil && undone > 0 {
		err = fmt.Errorf("%w: act %d has been taken back", ErrConflict, number)
	}
	return err
}

// remember keeps the override that a customer had before the act of w.
func (w *write) remember(ctx context.Context, was *rulesource.Override) error {
	return w.db.run(ctx, w.tx, "INSERT INTO stint_before (number, rule, client_key, action, limits, expires, act) VALUES (?, ?, ?, ?, ?, ?, ?)",
		w.state.audit+1, was.Rule, []byte(was.Key), actionOf(was), strings.Join(was.Limits, "\n"), micros(was.Expires), was.Act)
}

// undoOne undoes an act on one customer.
func (w *write) undoOne(ctx context.Context, d *AuditEntry, author string) (act Act, err error) {
	back, err := scanOverride(w.tx.QueryRowContext(ctx, w.db.d.bind("SELECT rule, client_key, action, limits, 0, expires, '', '', 0, act FROM stint_before WHERE number = ?"), d.Number))
	if errors.Is(err, sql.ErrNoRows) {
		return act, refuse("act %d: what was before it is not kept", d.Number)
	}
	if err != nil {
		return act, err
	}
	held, err := w.db.override(ctx, w.tx, back.Rule, back.Key, w.at)
	if err == nil {
		back, err = d.Back(held, back, moment(w.at))
	}
	if err != nil {
		return act, err
	}
	back.Author, back.Reason = author, UndoOf(d.Number)
	w.state.change++
	return Change(&held, &back), w.putOverride(ctx, &back)
}

// undoLoad undoes a load, for the customers who still have the override that it set.
func (w *write) undoLoad(ctx context.Context, d *AuditEntry, author string, dog *dog) (act Act, err error) {
	w.state.change++
	reason := UndoOf(d.Number)
	var held, ended int64
	if err := w.tx.QueryRowContext(ctx, w.db.d.bind("SELECT count(*) FROM stint_overrides WHERE act = ?"), d.Number).Scan(&held); err != nil {
		return act, err
	}
	if held == 0 {
		return act, refuse("act %d is not what holds any more: each of its overrides was changed since", d.Number)
	}
	dog.wait(documentTimeout)
	back := fmt.Sprintf("INSERT INTO stint_overrides (%s) SELECT b.rule, b.client_key, CASE WHEN b.expires > 0 AND b.expires <= %[2]d THEN 0 ELSE b.action END, b.limits, %[2]d, b.expires, ?, ?, %[3]d, b.act"+
		" FROM stint_before b JOIN stint_overrides o ON o.rule = b.rule AND o.client_key = b.client_key WHERE b.number = ? AND o.act = ?", overrideColumns, w.at, w.state.change)
	if err := w.db.run(ctx, w.tx, back+w.db.d.onConflict("rule, client_key", putColumns...), reason, author, d.Number, d.Number); err != nil {
		return act, err
	}
	dog.wait(documentTimeout)
	if err := w.count(ctx, &ended, "UPDATE stint_overrides SET action = 0, limits = '', expires = 0, act = 0, created = ?, reason = ?, author = ?, change_number = ? WHERE act = ?",
		w.at, reason, author, w.state.change, d.Number); err != nil {
		return act, err
	}
	dog.wait(documentTimeout)
	return Act{Author: author, Act: ActLoad, Subject: d.Subject, Now: fmt.Sprintf("%d as before, %d ended", held-ended, ended), Reason: reason}, nil
}

// forgetBefore removes what was kept for undos that are too late by now.
func (db *DB) forgetBefore(ctx context.Context, now int64) error {
	_, err := db.sql.ExecContext(ctx, db.d.bind("DELETE FROM stint_before WHERE number < coalesce((SELECT min(number) FROM stint_audit WHERE created >= ?), 0)"), now-undoFor.Microseconds())
	return err
}
