package rulesdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/stint-dev/stint/rulesource"
)

// SetPlan assigns a plan to the customers that have a value of an attribute; "" removes it. It
// returns the plan before. Nodes use the plan in every rule whose tiers are by the attribute.
func (db *DB) SetPlan(ctx context.Context, attribute, value, plan, author, reason string) (was string, err error) {
	switch {
	case attribute == "":
		return "", refuse("attribute: missing")
	case value == "" || len(value) > 512:
		return "", refuse("value: %d bytes: from 1 to 512", len(value))
	}
	if err := errors.Join(checkName("attribute", attribute, 128), checkLine("plan", plan, 128), checkLine("author", author, 255), CheckReason(reason)); err != nil {
		return "", err
	}
	err = db.write(ctx, func(ctx context.Context, w *write) error {
		err := w.tx.QueryRowContext(ctx, db.d.bind("SELECT plan FROM stint_plans WHERE attribute = ? AND attribute_value = ?"), attribute, []byte(value)).Scan(&was)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if plan == "" && was == "" {
			return fmt.Errorf("plan of %s %q: %w", attribute, value, ErrNotFound)
		}
		w.state.change++
		err = db.run(ctx, w.tx, "INSERT INTO stint_plans (attribute, attribute_value, plan, author, created, change_number) VALUES (?, ?, ?, ?, ?, ?)"+
			db.d.onConflict("attribute, attribute_value", "plan", "author", "created", "change_number"),
			attribute, []byte(value), plan, author, w.at, w.state.change)
		if err != nil {
			return err
		}
		return w.audit(ctx, Act{Author: author, Act: "plan set", Subject: fmt.Sprintf("%s %q", attribute, value), Was: was, Now: plan, Reason: reason})
	})
	return was, err
}

// Plan returns the plan of the customers with a value of an attribute, or
// [ErrNotFound].
func (db *DB) Plan(ctx context.Context, attribute, value string) (rulesource.Plan, error) {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	p, err := scanPlan(db.sql.QueryRowContext(ctx, db.d.bind("SELECT "+planColumns+" FROM stint_plans WHERE attribute = ? AND attribute_value = ?"), attribute, []byte(value)))
	if errors.Is(err, sql.ErrNoRows) || err == nil && p.Plan == "" {
		err = fmt.Errorf("plan of %s %q: %w", attribute, value, ErrNotFound)
	}
	return p, db.failed(err)
}

// Plans returns up to n plans of an attribute, or of all attributes for "", in the order of
// attributes and values, after the last plan of the page before.
func (db *DB) Plans(ctx context.Context, attribute string, after rulesource.Plan, n int) ([]rulesource.Plan, error) {
	query, args := "SELECT "+planColumns+" FROM stint_plans WHERE plan <> ''", []any(nil)
	if attribute != "" {
		query += " AND attribute = ?"
		args = append(args, attribute)
	}
	if after.Attribute != "" {
		query += " AND (attribute > ? OR (attribute = ? AND attribute_value > ?))"
		args = append(args, after.Attribute, after.Attribute, []byte(after.Value))
	}
	return list(ctx, db, scanPlan, query+" ORDER BY attribute, attribute_value LIMIT ?", append(args, n)...)
}

const planColumns = "attribute, attribute_value, plan, author, created, change_number"

// scanPlan reads a row of planColumns.
func scanPlan(row scanner) (p rulesource.Plan, err error) {
	var value []byte
	var created, change whole
	err = row.Scan(&p.Attribute, &value, &p.Plan, &p.Author, &created, &change)
	p.Value, p.Created, p.Change = string(value), moment(created.n), change.n
	return p, err
}
