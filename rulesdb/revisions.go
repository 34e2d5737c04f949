package rulesdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/stint-dev/stint/rulesource"
)

// MaxDocument is the greatest size of a document of rules, in bytes.
const MaxDocument = 32 << 20

// A Revision is a document of rules that was published.
type Revision struct {
	// Number counts revisions from 1 without gaps. Parent is the revision before.
	Number, Parent int64
	Author         string
	Created        time.Time
	Comment        string
	// Name is the name of the document in errors, such as stint.yaml.
	Name string
	// Hash is the hash of the document; see [rulesource.HashOf].
	Hash     string
	Document []byte
}

// AnyVersion stands for the version that a writer changed if the writer overwrites any version.
const AnyVersion = -1

// Publish puts a document in force as the next revision and returns that. parent is the revision
// that the writer changed. If another revision is in force by now, Publish writes nothing and
// returns [ErrConflict]; [AnyVersion] skips that check. The caller must have checked the document:
// Publish does not parse it.
func (db *DB) Publish(ctx context.Context, parent int64, r Revision) (Revision, error) {
	if err := errors.Join(checkLine("author", r.Author, 255), checkLine("comment", r.Comment, 4000), noUndo("comment", r.Comment), checkLine("name", r.Name, 255)); err != nil {
		return Revision{}, err
	}
	if len(r.Document) > MaxDocument {
		return Revision{}, refuse("a document of %d bytes: at most %d", len(r.Document), MaxDocument)
	}
	err := db.writeWithin(ctx, documentTimeout, func(ctx context.Context, w *write) error {
		if parent != AnyVersion && parent != w.was.revision {
			return fmt.Errorf("%w: revision %d is in force, not %d", ErrConflict, w.was.revision, parent)
		}
		return w.publish(ctx, &r, "publish")
	})
	return r, err
}

// publish writes r as the next revision.
func (w *write) publish(ctx context.Context, r *Revision, act string) error {
	w.state.revision++
	r.Number, r.Parent = w.state.revision, w.was.revision
	r.Created, r.Hash = moment(w.at), rulesource.HashOf(r.Document)
	err := w.db.run(ctx, w.tx, "INSERT INTO stint_revisions (number, parent, author, created, remark, name, hash, document) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		r.Number, r.Parent, r.Author, w.at, r.Comment, r.Name, r.Hash, r.Document)
	if err != nil {
		return err
	}
	return w.audit(ctx, Act{Author: r.Author, Act: act, Subject: fmt.Sprintf("revision %d", r.Number),
		Was: fmt.Sprintf("revision %d", r.Parent), Now: r.Hash, Reason: cut(r.Comment, 1000)})
}

// Rollback publishes the document of an earlier revision as a new revision.
func (db *DB) Rollback(ctx context.Context, parent, to int64, author, comment string) (Revision, error) {
	var r Revision
	if err := errors.Join(checkLine("author", author, 255), checkLine("comment", comment, 4000), noUndo("comment", comment)); err != nil {
		return r, err
	}
	err := db.writeWithin(ctx, documentTimeout, func(ctx context.Context, w *write) (err error) {
		if parent != AnyVersion && parent != w.was.revision {
			return fmt.Errorf("%w: revision %d is in force, not %d", ErrConflict, w.was.revision, parent)
		}
		if r, err = db.revision(ctx, w.tx, to); err != nil {
			return err
		}
		r.Author, r.Comment = author, comment
		return w.publish(ctx, &r, "roll back")
	})
	return r, err
}

// Accept declares the database right although nodes may hold something newer or different, as after
// a restore. The nodes then take its state.
func (db *DB) Accept(ctx context.Context, author, reason string) error {
	if err := errors.Join(checkLine("author", author, 255), CheckReason(reason)); err != nil {
		return err
	}
	return db.write(ctx, func(ctx context.Context, w *write) error {
		// The time makes the epoch grow even if an earlier accept was lost by the restore.
		w.state.epoch = max(w.was.epoch+1, w.at)
		return w.audit(ctx, Act{Author: author, Act: "accept", Subject: fmt.Sprintf("revision %d", w.was.revision), Reason: reason})
	})
}

// Revision returns one revision with its document; 0 is the one in force. The error is
// [ErrNotFound] if there is no such revision, or if [DB.Prune] has removed it.
func (db *DB) Revision(ctx context.Context, number int64) (Revision, error) {
	ctx, stop := context.WithTimeout(ctx, documentTimeout)
	defer stop()
	if number == 0 {
		v, err := db.version(ctx, db.sql)
		if err != nil {
			return Revision{}, db.failed(err)
		}
		number = v.Revision
	}
	r, err := db.revision(ctx, db.sql, number)
	return r, db.failed(err)
}

const revisionColumns = "number, parent, author, created, remark, name, hash"

func (db *DB) revision(ctx context.Context, from reader, number int64) (r Revision, err error) {
	err = r.scan(from.QueryRowContext(ctx, db.d.bind("SELECT "+revisionColumns+", document FROM stint_revisions WHERE number = ?"), number), &r.Document)
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("revision %d: %w", number, ErrNotFound)
	}
	return r, err
}

// scan reads a row of revisionColumns, and the columns after them.
func (r *Revision) scan(row scanner, more ...any) error {
	var created int64
	err := row.Scan(append([]any{&r.Number, &r.Parent, &r.Author, &created, &r.Comment, &r.Name, &r.Hash}, more...)...)
	r.Created = moment(created)
	return err
}

// Revisions returns up to n revisions before a number, newest first, without
// their documents. A number of 0 begins at the newest.
func (db *DB) Revisions(ctx context.Context, before int64, n int) ([]Revision, error) {
	if before <= 0 {
		before = math.MaxInt64
	}
	return list(ctx, db, func(row scanner) (r Revision, err error) {
		err = r.scan(row)
		return r, err
	}, "SELECT "+revisionColumns+" FROM stint_revisions WHERE number < ? ORDER BY number DESC LIMIT ?", before, n)
}
