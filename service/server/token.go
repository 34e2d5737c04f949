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

// minToken is the least length of a token: 16 characters out of 64 are 96 bits.
const minToken = 16

// maxTokenFile bounds a file of tokens, in bytes: enough for ten thousand tokens.
const maxTokenFile = 1 << 20

// Tokens are the tokens that let callers in, read from a file with one on a line; empty
// lines and lines that begin with # do not count. With several tokens, one can be
// replaced without a pause. A line may also hold the hash of a token with a name, a role
// and an end, or revoke the tokens of a name: see [TokenLine].
//
// Tokens are kept hashed. They may be used from many goroutines at once, also
// while the file is read again.
type Tokens struct {
	path      string
	operators bool // a file of operators: Has is false for viewers
	now       atomic.Pointer[[]token]
	read      atomic.Pointer[[sha256.Size]byte] // the hash of the file at the last Reload
}

type token struct {
	TokenLine
	line    int
	revoked bool
}

// ReadTokens reads a file of clients' tokens. A hash in it must be of a viewer. Errors
// name the line, and never quote it.
func ReadTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	return t, t.Reload()
}

// ReadOperators reads a file of operators' tokens. A hash in it may be of any role.
func ReadOperators(path string) (*Tokens, error) {
	t := &Tokens{path: path, operators: true}
	return t, t.Reload()
}

// Reload reads the file again. After an error, the tokens stay as they were.
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

// take replaces the tokens by those in text.
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

// Watch reads the file again within a second of a change, until ctx is done. It waits
// until two looks find the same text, so that it does not take a half-written file. If
// the file cannot be read, it calls note once with the error, and the tokens stay as
// they were.
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

// Readable reports whether everybody on this machine may read the file, not only its
// owner and group.
func (t *Tokens) Readable() bool {
	info, err := os.Stat(t.path)
	return err == nil && info.Mode().Perm()&0o004 != 0
}

// A Holder is the caller that a token belongs to.
type Holder struct {
	// Line is the line of the token in its file; 0 if no token matches.
	Line int
	// Name and Role are "" if the file holds the token itself, not its hash.
	Name, Role string
}

// Has reports whether a token is in the file, and in a file of operators is not of a
// viewer. A nil Tokens has no token.
func (t *Tokens) Has(presented string) bool {
	h := t.Find(presented)
	return h.Line > 0 && (!t.operators || h.Role != RoleViewer)
}

// Find returns the holder of a token: the zero Holder if the token is not in the file,
// has ended or is revoked. The time that it takes does not depend on which token
// matches, or on how much of it is right.
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

// Shown returns the token of a request, as Bearer does, or the password that a browser
// sends; "" if there is none, or several.
func Shown(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok && len(r.Header["Authorization"]) == 1 {
		return password
	}
	return Bearer(r)
}

// Bearer returns the bearer token of a request; "" if there is none, or several.
func Bearer(r *http.Request) string { return BearerOf(r.Header["Authorization"]) }

// BearerOf returns the bearer token in the values of Authorization headers.
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
