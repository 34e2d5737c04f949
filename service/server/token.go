package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// minToken is how short a token may be: 16 characters of 64 are 96 bits.
const minToken = 16

// maxTokenFile bounds a file of tokens, in bytes: enough for ten thousand.
const maxTokenFile = 1 << 20

// Tokens are what callers may show to be let in, read from a file: one on a
// line; lines that begin with # and empty ones are passed over. Several make it
// possible to change them without a pause. In place of a token a line may hold
// its hash, with a name, a role and an end; another may revoke those of a name:
// see [TokenLine].
//
// Tokens are kept hashed. They may be used from many goroutines at once, also
// while they are read anew.
type Tokens struct {
	path      string
	operators bool // of operators: those of viewers do not count in Has
	now       atomic.Pointer[[]token]
	read      atomic.Pointer[[sha256.Size]byte] // the hash of the text that was read last
}

type token struct {
	TokenLine
	line    int
	revoked bool
}

// ReadTokens reads a file of tokens. Those whose hashes it holds are
// viewers. Its errors name the line, never what is on it.
func ReadTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	return t, t.Reload()
}

// ReadOperators reads a file of operators; those whose hashes it holds may have
// any role.
func ReadOperators(path string) (*Tokens, error) {
	t := &Tokens{path: path, operators: true}
	return t, t.Reload()
}

// Reload reads the file again. If there is an error, the tokens stay as they
// were.
func (t *Tokens) Reload() error {
	text, err := t.text()
	if err != nil {
		return err
	}
	return t.take(text)
}

// text returns what the file holds.
func (t *Tokens) text() ([]byte, error) {
	f, err := os.Open(t.path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxTokenFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxTokenFile:
		return nil, fmt.Errorf("%s: more than %d bytes: one token a line", t.path, maxTokenFile)
	}
	return text, nil
}

// take makes the tokens those of a text.
func (t *Tokens) take(text []byte) error {
	sum := sha256.Sum256(text)
	t.read.Store(&sum)
	var all []token
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		one, err := t.parse(line)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", t.path, number, err)
		}
		if one.Revoked.IsZero() {
			one.line = number
			all = append(all, one)
			continue
		}
		for i := range all {
			all[i].revoked = all[i].revoked || all[i].Name == one.Name
		}
	}
	if len(all) == 0 {
		return fmt.Errorf("%s: no token there: write one on a line, such as openssl rand -hex 32 makes", t.path)
	}
	t.now.Store(&all)
	return nil
}

// parse reads a line.
func (t *Tokens) parse(line []byte) (token, error) {
	if !NamesHolder(line) {
		return token{TokenLine: TokenLine{Hash: sha256.Sum256(line)}}, checkToken(line)
	}
	l, err := ParseTokenLine(string(line))
	if err == nil && !t.operators && l.Revoked.IsZero() && l.Role != RoleViewer {
		err = fmt.Errorf("role %q: those of this file may ask and see, which is %s: --operator-token-file is for the others", l.Role, RoleViewer)
	}
	return token{TokenLine: l}, err
}

// lookEvery is how often Watch looks at the file.
const lookEvery = 250 * time.Millisecond

// Watch reads the file again when its text changes, within a second, until ctx
// is done. A text counts once it has been there for two looks, so that one which
// is half written does not. When the file cannot be read, note is called once with
// the error, and the tokens stay as they were.
func (t *Tokens) Watch(ctx context.Context, note func(error)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var before [sha256.Size]byte
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		text, err := t.text()
		if err == nil {
			sum := sha256.Sum256(text)
			steady := sum == before
			before = sum
			if sum == *t.read.Load() {
				continue
			}
			if !steady {
				continue
			}
			err = t.take(text)
		}
		if err != nil && err.Error() != said {
			note(err)
		}
		said = ""
		if err != nil {
			said = err.Error()
		}
	}
}

func checkToken(line []byte) error {
	if len(line) < minToken {
		return fmt.Errorf("a token of %d characters: at least %d, such as openssl rand -hex 32 makes", len(line), minToken)
	}
	for i, c := range line {
		if c <= ' ' || c > '~' {
			return fmt.Errorf("character %d is none that a header can hold: one token a line, of printable ASCII without blanks", i+1)
		}
	}
	return nil
}

// Readable reports whether others than the owner and the group of the file may
// read it.
func (t *Tokens) Readable() bool {
	info, err := os.Stat(t.path)
	return err == nil && info.Mode().Perm()&0o004 != 0
}

// A Holder is who shows a token.
type Holder struct {
	// Line is that of the token in its file.
	Line int
	// Name and Role are "" where the file holds the token itself.
	Name, Role string
}

// Has reports whether a token is one of ours, and of a file of operators whether
// its holder is one. No token is one of a nil Tokens.
func (t *Tokens) Has(presented string) bool {
	h := t.Find(presented)
	return h.Line > 0 && (!t.operators || h.Role != RoleViewer)
}

// Find returns who holds a token: the zero Holder if it is none of ours, has
// ended or is revoked. How long it takes does not depend on which it is, nor on
// how much of it is right.
func (t *Tokens) Find(presented string) (h Holder) {
	if t == nil {
		return h
	}
	hash := sha256.Sum256([]byte(presented))
	for _, one := range *t.now.Load() {
		if subtle.ConstantTimeCompare(hash[:], one.Hash[:]) == 1 && !one.revoked && (one.Until.IsZero() || time.Now().Before(one.Until)) {
			h = Holder{one.line, one.Name, one.Role}
		}
	}
	return h
}

// Shown returns the token that a request shows, in a browser as a password; "" if
// none, or several.
func Shown(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok && len(r.Header["Authorization"]) == 1 {
		return password
	}
	return Bearer(r)
}

// Bearer returns the token that a request shows; "" if none, or several.
func Bearer(r *http.Request) string { return BearerOf(r.Header["Authorization"]) }

// BearerOf returns the token that the lines of an Authorization header show.
func BearerOf(lines []string) string {
	if len(lines) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimLeft(token, " ")
}
