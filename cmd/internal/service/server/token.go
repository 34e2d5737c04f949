package server

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
)

// minToken is how short a token may be: 16 characters of 64 are 96 bits.
const minToken = 16

// maxTokenFile bounds a file of tokens, in bytes: enough for ten thousand.
const maxTokenFile = 1 << 20

// Tokens are what callers may show to be let in, read from a file: one on a
// line; lines that begin with # and empty ones are passed over. Several make it
// possible to change them without a pause.
//
// Tokens are kept hashed. They may be used from many goroutines at once, also
// while they are read anew.
type Tokens struct {
	path string
	now  atomic.Pointer[[]token]
}

type token struct {
	hash [sha256.Size]byte
	line int
}

// ReadTokens reads a file. Its errors name the line, never what is on it.
func ReadTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	return t, t.Reload()
}

// Reload reads the file again. If there is an error, the tokens stay as they
// were.
func (t *Tokens) Reload() error {
	f, err := os.Open(t.path)
	if err != nil {
		return err
	}
	defer f.Close() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxTokenFile+1))
	switch {
	case err != nil:
		return err
	case len(text) > maxTokenFile:
		return fmt.Errorf("%s: more than %d bytes: one token a line", t.path, maxTokenFile)
	}
	var all []token
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if err := checkToken(line); err != nil {
			return fmt.Errorf("%s:%d: %w", t.path, number, err)
		}
		all = append(all, token{sha256.Sum256(line), number})
	}
	if len(all) == 0 {
		return fmt.Errorf("%s: no token there: write one on a line, such as openssl rand -hex 32 makes", t.path)
	}
	t.now.Store(&all)
	return nil
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

// Has reports whether a token is one of ours. No token is one of a nil Tokens.
func (t *Tokens) Has(presented string) bool { return t.find(presented) > 0 }

// Line returns the line of a token in its file; 0 if it is none of ours, or there
// are none.
func (t *Tokens) Line(presented string) int { return t.find(presented) }

// find returns the line of a token; 0 if it is none of ours. How long it takes
// does not depend on which it is, nor on how much of it is right.
func (t *Tokens) find(presented string) (line int) {
	if t == nil {
		return 0
	}
	hash := sha256.Sum256([]byte(presented))
	for _, one := range *t.now.Load() {
		if subtle.ConstantTimeCompare(hash[:], one.hash[:]) == 1 {
			line = one.line
		}
	}
	return line
}

// bearer returns the token that a request shows; "" if none, or several.
func bearer(r *http.Request) string {
	lines := r.Header["Authorization"]
	if len(lines) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimLeft(token, " ")
}
