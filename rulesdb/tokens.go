package rulesdb

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// A Role says what a token may do.
type Role string

// Each role may also do everything that the roles before it may.
const (
	Viewer   Role = "viewer"   // sees everything but keys and tokens
	Operator Role = "operator" // sets overrides and blocks, resets keys
	Admin    Role = "admin"    // publishes and rolls back rules, makes tokens
)

// A Token is a token of the API. The database keeps only its hash.
type Token struct {
	Hash    string    `json:"-"`
	Name    string    `json:"name"`
	Role    Role      `json:"role"`
	Created time.Time `json:"at"`
	Expires time.Time `json:"expires,omitzero"`
	Revoked time.Time `json:"revoked,omitzero"`
	// Ended says that the token was revoked, or has expired by the database's clock.
	Ended bool `json:"-"`
}

// NewToken makes a token with a role. It expires after lasts; 0 is for good. The text is returned
// once and stored nowhere.
func (db *DB) NewToken(ctx context.Context, author, name string, role Role, lasts time.Duration) (text string, err error) {
	if role != Viewer && role != Operator && role != Admin {
		return "", refuse("role %q: viewer, operator or admin", role)
	}
	if err := errors.Join(checkLine("author", author, 255), checkName("name", name, 255)); err != nil {
		return "", err
	}
	text = rand.Text()
	err = db.write(ctx, func(ctx context.Context, w *write) error {
		var expires int64
		if lasts > 0 {
			expires = w.at + lasts.Microseconds()
		}
		err := db.run(ctx, w.tx, "INSERT INTO stint_tokens (hash, name, role, created, expires, revoked) VALUES (?, ?, ?, ?, ?, 0)",
			HashToken(text), name, string(role), w.at, expires)
		if err != nil {
			return err
		}
		w.state.change++
		return w.audit(ctx, Act{Author: author, Act: "token make", Subject: name, Now: string(role)})
	})
	return text, err
}

// HashToken returns the hash that the database keeps of a token.
func HashToken(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// RevokeToken revokes all tokens with a name.
func (db *DB) RevokeToken(ctx context.Context, author, name string) error {
	return db.write(ctx, func(ctx context.Context, w *write) error {
		r, err := w.tx.ExecContext(ctx, db.d.bind("UPDATE stint_tokens SET revoked = ? WHERE name = ? AND revoked = 0"), w.at, name)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, fmt.Errorf("token %q: %w", name, ErrNotFound))
		}
		w.state.change++
		return w.audit(ctx, Act{Author: author, Act: "token revoke", Subject: name})
	})
}

// Tokens returns all tokens, by name.
func (db *DB) Tokens(ctx context.Context) ([]Token, error) {
	return list(ctx, db, func(row scanner) (t Token, err error) {
		var created, expires, revoked, at int64
		err = row.Scan(&t.Hash, &t.Name, &t.Role, &created, &expires, &revoked, &at)
		t.Created, t.Expires, t.Revoked = moment(created), moment(expires), moment(revoked)
		t.Ended = revoked != 0 || expires != 0 && expires <= at
		return t, err
	}, "SELECT hash, name, role, created, expires, revoked, "+db.d.micros+" FROM stint_tokens ORDER BY name, created")
}
