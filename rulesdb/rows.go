package rulesdb

import (
	"context"
	"database/sql"
)

// A reader is a database or a transaction.
type reader interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// A scanner is a row, or rows.
type scanner interface{ Scan(to ...any) error }

// each passes the rows of a query to take, as scan reads them.
func each[T any](ctx context.Context, from reader, scan func(scanner) (T, error), take func(T) error, query string, args ...any) error {
	rows, err := from.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		one, err := scan(rows)
		if err == nil {
			err = take(one)
		}
		if err != nil {
			return err
		}
	}
	return rows.Err()
}

// list returns the rows of a query, within callTimeout.
func list[T any](ctx context.Context, db *DB, scan func(scanner) (T, error), query string, args ...any) (all []T, err error) {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	err = each(ctx, db.sql, scan, func(one T) error {
		all = append(all, one)
		return nil
	}, db.d.bind(query), args...)
	if err != nil {
		return nil, db.failed(err)
	}
	return all, nil
}
