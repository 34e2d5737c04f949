package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// The roles. Each may do all that the role before it may, and more.
const (
	RoleViewer   = "viewer"
	RoleOperator = "operator"
	RoleAdmin    = "admin"
)

const (
	hashMark    = "sha256:"
	revokedMark = "revoked "
	// maxName bounds names, in bytes.
	maxName = 255
)

// A TokenLine is a line of a file of tokens that names the holder of a token, or the
// holder whose tokens in the lines above are revoked.
type TokenLine struct {
	// Hash is the SHA-256 of the token; it is zero in a line that revokes.
	Hash [sha256.Size]byte
	Name string
	Role string // [RoleViewer], [RoleOperator] or [RoleAdmin]
	// Made is when the token was made, Until when it ends; zero is never. Revoked
	// is when all tokens of Name in the lines above were revoked.
	Made, Until, Revoked time.Time
}

// String returns the line as it is in the file.
func (l TokenLine) String() string {
	if !l.Revoked.IsZero() {
		return revokedMark + "name=" + l.Name + " at=" + l.Revoked.UTC().Format(time.RFC3339)
	}
	text := hashMark + hex.EncodeToString(l.Hash[:]) + " name=" + l.Name + " role=" + l.Role
	if !l.Made.IsZero() {
		text += " made=" + l.Made.UTC().Format(time.RFC3339)
	}
	if !l.Until.IsZero() {
		text += " until=" + l.Until.UTC().Format(time.RFC3339)
	}
	return text
}

// Check returns an error if the name or the role is invalid.
func (l TokenLine) Check() error {
	strange := func(r rune) bool { return r <= ' ' || r > '~' }
	switch {
	case l.Name == "" || len(l.Name) > maxName || strings.ContainsFunc(l.Name, strange):
		return fmt.Errorf("name %q: 1 to %d printable ASCII characters without blanks", l.Name, maxName)
	case l.Revoked.IsZero() && l.Role != RoleViewer && l.Role != RoleOperator && l.Role != RoleAdmin:
		return fmt.Errorf("role %q: %s, %s or %s", l.Role, RoleViewer, RoleOperator, RoleAdmin)
	}
	return nil
}

// NamesHolder reports whether a line is a [TokenLine].
func NamesHolder(line []byte) bool {
	return bytes.HasPrefix(line, []byte(hashMark)) || bytes.HasPrefix(line, []byte(revokedMark))
}

// ParseTokenLine reads what String writes. Its errors never quote a hash.
func ParseTokenLine(text string) (l TokenLine, err error) {
	words := strings.Fields(text)
	fields := map[string]func(string) error{
		"name": func(v string) error { l.Name = v; return nil },
	}
	hash, hashed := strings.CutPrefix(words[0], hashMark)
	if hashed {
		sum, err := hex.DecodeString(hash)
		if err != nil || copy(l.Hash[:], sum) != sha256.Size || len(sum) != sha256.Size {
			return l, fmt.Errorf("%s is followed by %d characters that are no hash: 64 of 0-9 and a-f, as stint token make writes", hashMark, len(hash))
		}
		fields["role"] = func(v string) error { l.Role = v; return nil }
		fields["made"] = moment(&l.Made)
		fields["until"] = moment(&l.Until)
	} else {
		fields["at"] = moment(&l.Revoked)
	}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		read, ok := fields[name]
		if !ok {
			return l, fmt.Errorf("field %q: unknown, or there twice", name)
		}
		delete(fields, name)
		if err := read(value); err != nil {
			return l, fmt.Errorf("%s: %w", name, err)
		}
	}
	if !hashed && l.Revoked.IsZero() {
		return l, fmt.Errorf("revoked without at=: when, such as at=2026-01-31T12:00:00Z")
	}
	return l, l.Check()
}

func moment(to *time.Time) func(string) error {
	return func(value string) (err error) {
		if *to, err = time.Parse(time.RFC3339, value); err != nil {
			return fmt.Errorf("%q: a time such as 2026-01-31T12:00:00Z", value)
		}
		return nil
	}
}
