package rulesdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/stint-dev/stint/rulesource"
)

// SetPlan says which plan the customers with a value of an attribute have; ""
// takes it away. It returns the plan before. Nodes receive plans with the rules;
// package policy does not look at them.
func (db *DB) SetPlan(ctx context.Context, attribute, value, plan, author, reason string) (was string, err error) {
	switch {
	case attribute == "":
		return "", refuse("attribute: missing")
	case value == "" || len(value) > 512:
		return "", refuse("value: %d bytes: from 1 to 512", len(value))
	}
	if err := errors.Join(line("attribute", attribute, 128), line("plan", plan, 128), line("author", author, 255), line("reason", reason, 1000)); err != nil {
		return "", err
	}
	err = db.write(ctx, func(ctx context.Context, w *write) error {
		err := w.tx.QueryRowContext(ctx, db.d.bind("SELECT plan FROM stint_plans WHERE attribute = ? AND attribute_value = ?"), attribute, []byte(value)).Scan(&was)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
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

func scanPlan(rows *sql.Rows) (p rulesource.Plan, err error) {
	var value []byte
	err = rows.Scan(&p.Attribute, &value, &p.Plan, &p.Change)
	p.Value = string(value)
	return p, err
}
