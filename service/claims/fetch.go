package claims

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/stint-dev/stint/internal/aside"
	"github.com/stint-dev/stint/service/atomicfile"
)

const (
	// fetchWithin is how long a server may take for its whole answer.
	fetchWithin = 10 * time.Second
	// fetchAgain is the least time between two fetches.
	fetchAgain = time.Minute
	// fetchEvery is how old keys may get while no token asks for unknown ones. A key that was
	// withdrawn may verify for that long.
	fetchEvery = 10 * time.Minute
	// lookEvery is how often a file of keys is checked.
	lookEvery = 250 * time.Millisecond
)

// isFile reports whether the keys are in a file.
func (v *verifier) isFile() bool { return filepath.IsAbs(v.jwt.JWKS) }

// take puts a JWKS in force.
func (v *verifier) take(text []byte) error {
	if was := v.keys.Load(); was != nil && bytes.Equal(was.text, text) {
		return nil
	}
	set, err := readKeys(text, v.isFile())
	if err == nil {
		v.keys.Store(set)
	}
	return err
}

// shown returns where the keys are, without parts that may be secret.
func (v *verifier) shown() string {
	if u, err := url.Parse(v.jwt.JWKS); err == nil && !v.isFile() {
		return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
	}
	return v.jwt.JWKS
}

// firstKeys puts keys in force that need no fetch: those of a file, or the last ones of a URL.
func (s *Source) firstKeys(v *verifier) {
	if v.isFile() {
		if err := v.readFile(); err != nil {
			s.o.Log.Error("no keys for tokens", "jwks", v.shown(), "error", err)
		}
		return
	}
	if err := s.remember(v); err != nil {
		s.o.Log.Error("the last keys for tokens cannot be used", "file", s.o.State, "error", err)
	}
}

// keep keeps the keys up to date until ctx ends. It logs a failure once, until the next success or
// a different failure.
func (s *Source) keep(ctx context.Context, v *verifier) {
	said := ""
	note := func(err error) {
		switch {
		case ctx.Err() != nil:
		case err == nil && said != "":
			s.o.Log.Info("keys for tokens: read again", "jwks", v.shown())
		case err != nil && err.Error() != said:
			s.o.Log.Error("no new keys for tokens: the last ones stay in force", "jwks", v.shown(), "any", v.keys.Load() != nil, "error", err)
		}
		if said = ""; err != nil {
			said = err.Error()
		}
	}
	if v.isFile() {
		v.watch(ctx, note)
		return
	}
	client := &http.Client{Transport: s.o.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	saved := v.keys.Load() // the keys of the state file, or nil
	for ctx.Err() == nil {
		text, err := v.fetch(ctx, client)
		if err == nil {
			err = v.take(text)
		}
		if now := v.keys.Load(); now != saved {
			s.save(v, now)
			saved = now
		}
		note(err)
		aside.Sleep(ctx, fetchAgain)
		if err != nil {
			continue
		}
		later := time.NewTimer(fetchEvery - fetchAgain)
		select {
		case <-ctx.Done():
		case <-v.wanted:
		case <-later.C:
		}
		later.Stop()
	}
}

// fetch asks the server for the JWKS.
func (v *verifier) fetch(ctx context.Context, client *http.Client) (text []byte, err error) {
	select {
	case <-v.wanted: // this fetch answers all requests for unknown keys so far
	default:
	}
	ctx, stop := context.WithTimeout(ctx, fetchWithin)
	defer stop()
	defer func() {
		if errors.Is(err, context.DeadlineExceeded) { // net/http reports a timeout in several ways
			err = fmt.Errorf("no whole answer within %v", fetchWithin)
		}
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.jwt.JWKS, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := client.Do(r)
	if err != nil {
		if whole, ok := errors.AsType[*url.Error](err); ok {
			err = whole.Err // the URL may hold a secret
		}
		return nil, err
	}
	defer resp.Body.Close() // the body has been read, or is not wanted
	switch {
	case slices.Contains([]int{301, 302, 303, 307, 308}, resp.StatusCode):
		return nil, fmt.Errorf("answered %s, and redirects are not followed: name the URL that has the keys", resp.Status)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("answered %s", resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxJWKS+1))
}

// watch reads the file again when it has changed and then stayed the same for one interval.
func (v *verifier) watch(ctx context.Context, note func(error)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	before, read := "", ""
	for {
		if now := stampOf(v.jwt.JWKS); now == before && now != read {
			read = now
			note(v.readFile())
		} else {
			before = now
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// stampOf returns a text that changes when a file does.
func stampOf(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(info.ModTime().UnixNano(), info.Size())
}

// readFile puts the keys of the file in force.
func (v *verifier) readFile() error {
	text, err := readSome(v.jwt.JWKS)
	if err != nil {
		return err
	}
	return v.take(text)
}

// readSome reads a regular file, but at most twice the size of a JWKS.
func readSome(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	return io.ReadAll(io.LimitReader(f, 2*maxJWKS))
}

// lastKeys is the contents of the state file: the keys of a URL, as they were received.
type lastKeys struct {
	URL  string          `json:"url"`
	JWKS json.RawMessage `json:"jwks"`
}

// remember puts the keys of the state file in force if they are from the present URL.
func (s *Source) remember(v *verifier) error {
	if s.o.State == "" {
		return nil
	}
	text, err := readSome(s.o.State)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var last lastKeys
	if err == nil {
		err = json.Unmarshal(text, &last)
	}
	if err != nil || last.URL != v.jwt.JWKS {
		return err
	}
	return v.take(last.JWKS)
}

// save writes keys to the state file. They stay in force if that fails.
func (s *Source) save(v *verifier, set *keySet) {
	if s.o.State == "" {
		return
	}
	err := atomicfile.Write(s.o.State, func(w io.Writer) error {
		return json.NewEncoder(w).Encode(lastKeys{v.jwt.JWKS, set.text})
	})
	if err != nil {
		s.o.Log.Error("the keys for tokens are not kept for a restart", "file", s.o.State, "error", err)
	}
}
