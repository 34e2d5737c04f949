package main

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/server"
)

// tokenFileFlag names a file of tokens, instead of a database.
type tokenFileFlag struct {
	File string `instead:"backend" placeholder:"FILE" help:"Instead of --rules: a token file, as for --operator-token-file of a server. Lines are added to it, and none is changed."`
}

// make adds the hash of a token to the file and returns the token.
func (c *tokenFileFlag) make(name, role string, lasts time.Duration) (text string, err error) {
	text = rand.Text()
	now := time.Now()
	line := server.TokenLine{Hash: sha256.Sum256([]byte(text)), Name: name, Role: role, Made: now}
	if lasts > 0 {
		line.Until = now.Add(lasts)
	}
	return text, c.add(line)
}

// revoke adds a line that revokes all tokens of a name.
func (c *tokenFileFlag) revoke(name string) error {
	tokens, err := c.list()
	if err != nil {
		return err
	}
	for _, t := range tokens {
		if t.Name == name && t.Revoked.IsZero() {
			return c.add(server.TokenLine{Name: name, Revoked: time.Now()})
		}
	}
	return fmt.Errorf("%s: token %q: %w", c.File, name, rulesdb.ErrNotFound)
}

// list returns the tokens that have names.
func (c *tokenFileFlag) list() (all []rulesdb.Token, err error) {
	text, err := os.ReadFile(c.File)
	if err != nil {
		return nil, err
	}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimSpace(line)
		if !server.NamesHolder(line) {
			continue
		}
		l, err := server.ParseTokenLine(string(line))
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", c.File, number, err)
		}
		if l.Revoked.IsZero() {
			all = append(all, rulesdb.Token{Name: l.Name, Role: rulesdb.Role(l.Role), Created: l.Made, Expires: l.Until})
			continue
		}
		for i := range all {
			if all[i].Name == l.Name && all[i].Revoked.IsZero() {
				all[i].Revoked = l.Revoked
			}
		}
	}
	return all, nil
}

// add appends a line with one write: other programs may append at the same time, and servers
// must read whole lines. The file keeps its owner and mode.
func (c *tokenFileFlag) add(l server.TokenLine) error {
	if err := l.Check(); err != nil {
		return &usageError{"NAME", err}
	}
	before, err := os.ReadFile(c.File)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	line := l.String() + "\n"
	if len(before) > 0 && before[len(before)-1] != '\n' {
		line = "\n" + line
	}
	f, err := os.OpenFile(c.File, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	n, err := f.WriteString(line)
	if err != nil && n > 0 { // servers refuse a file with a part of a line
		err = errors.Join(err, c.cut(line[:n]))
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if _, err = server.ReadOperators(c.File); err != nil {
		return fmt.Errorf("the line is written, but servers refuse the file and keep the tokens they had until this is mended: %w", err)
	}
	return nil
}

// cut removes part, the beginning of a line, from the end of the file, unless another program
// has appended a line since.
func (c *tokenFileFlag) cut(part string) error {
	text, err := os.ReadFile(c.File)
	if err != nil {
		return err
	}
	whole, ends := bytes.CutSuffix(text, []byte(part))
	if !ends {
		return fmt.Errorf("%s: it has a part of a line now, which servers refuse: remove it", c.File)
	}
	return os.Truncate(c.File, int64(len(whole)))
}
