package claims_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/policy/rulesfile"
	"github.com/stint-dev/stint/service/claims"
)

const location = "https://id.example.com/jwks?secret=1"

// A server is where keys are: what answers, and how often it was asked.
type server struct {
	asked  atomic.Int32
	answer atomic.Value // of an answer
}

type answer = func(r *http.Request) (*http.Response, error)

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked.Add(1)
	return s.answer.Load().(answer)(r)
}

// says has the server answer with a status and a body.
func (s *server) says(status int, body string) { s.answer.Store(saying(status, body)) }

func saying(status int, body string) answer {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: http.Header{"Location": {"https://elsewhere.example.com"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

// fetching runs a test in a bubble with a Source that fetches from a server; again starts
// the process anew.
func fetching(t *testing.T, do func(t *testing.T, from *server, again func() *claims.Source, log *bytes.Buffer)) {
	synctest.Test(t, func(t *testing.T) {
		state := filepath.Join(t.TempDir(), "stint.yaml.state.keys")
		from, log := &server{}, &bytes.Buffer{}
		stop := func() {}
		do(t, from, func() *claims.Source {
			stop()
			s := claims.New(claims.Options{State: state, Transport: from, Log: slog.New(slog.NewTextHandler(log, nil))})
			s.Use(&rulesfile.JWT{Header: "authorization", JWKS: location, Algorithms: []string{"EdDSA", "HS256"}})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); s.Run(ctx) }()
			stop = func() { cancel(); <-done }
			synctest.Wait()
			return s
		}, log)
		stop()
	})
}

func edToken(kid string) string {
	return token(`{"alg":"EdDSA","kid":"`+kid+`"}`, `{"sub":"ann"}`, eddsa(keys().ed))
}

func want(t *testing.T, s *claims.Source, token, want string) {
	t.Helper()
	if _, outcome := ask(s, token, now); outcome != want {
		t.Errorf("%s, want %s", outcome, want)
	}
}

// TestUnknownKeys asks for a thousand keys that nobody has, over and over: the server is
// asked once, and once a minute then. A new key is known within a minute.
func TestUnknownKeys(t *testing.T) {
	fetching(t, func(t *testing.T, from *server, again func() *claims.Source, _ *bytes.Buffer) {
		from.says(200, jwks(jwk(keys().other.Public(), `,"kid":"old"`)))
		s := again()
		flood := func(asked int32) {
			t.Helper()
			for i := range 1000 {
				want(t, s, edToken(fmt.Sprint("made-up-", i)), "unknown_key")
			}
			synctest.Wait()
			if n := from.asked.Load(); n != asked {
				t.Errorf("asked %d times, want %d", n, asked)
			}
		}
		flood(1)
		time.Sleep(59 * time.Second)
		flood(1)
		time.Sleep(time.Second)
		synctest.Wait()
		flood(2)
		time.Sleep(30 * time.Second)
		flood(2)
		from.says(200, jwks(jwk(keys().ed.Public(), `,"kid":"new"`)))
		time.Sleep(30 * time.Second)
		synctest.Wait()
		want(t, s, edToken("new"), "valid")
		time.Sleep(5 * time.Minute)
		flood(4) // at once, since the last minute has seen no fetch
	})
}

// TestRefresh withdraws a key: it verifies for ten minutes at most.
func TestRefresh(t *testing.T) {
	fetching(t, func(t *testing.T, from *server, again func() *claims.Source, _ *bytes.Buffer) {
		from.says(200, issuers())
		s := again()
		want(t, s, edToken("ed"), "valid")
		from.says(200, jwks(jwk(keys().other.Public(), `,"kid":"other"`)))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		want(t, s, edToken("ed"), "unknown_key")
	})
}

// TestBadServer has keys stay in force whatever the server says next, also after a
// restart, and come into force when it is well again. A secret is no key where others
// could read it.
func TestBadServer(t *testing.T) {
	secret := jwk([]byte(strings.Repeat("s", 32)), ``)
	for name, bad := range map[string]answer{
		"gone":   func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") },
		"silent": func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() },
		"slow": func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: slowly{r.Context()}}, nil
		},
		"huge": func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(endless{})}, nil
		},
		"failing":       saying(500, issuers()),
		"elsewhere":     saying(302, issuers()),
		"a page":        saying(200, "<html>"),
		"empty":         saying(200, ""),
		"without keys":  saying(200, jwks()),
		"a secret":      saying(200, jwks(secret)),
		"too many keys": saying(200, jwks(strings.Fields(strings.Repeat(secret+" ", 101))...)),
	} {
		t.Run(name, func(t *testing.T) {
			fetching(t, func(t *testing.T, from *server, again func() *claims.Source, log *bytes.Buffer) {
				from.answer.Store(bad)
				s := again()
				time.Sleep(50 * time.Second)
				want(t, s, edToken("ed"), "no_keys")
				from.says(200, issuers())
				time.Sleep(time.Minute)
				synctest.Wait()
				want(t, s, edToken("ed"), "valid")
				from.answer.Store(bad)
				time.Sleep(time.Hour)
				want(t, s, edToken("ed"), "valid")
				want(t, s, token(`{"alg":"HS256"}`, `{}`, hs256([]byte(strings.Repeat("s", 32)))), "unknown_key")
				s = again()
				want(t, s, edToken("ed"), "valid")
				time.Sleep(30 * time.Second)
				synctest.Wait()
				if n := strings.Count(log.String(), "level=ERROR"); n != 3 || strings.Contains(log.String(), "secret=1") {
					t.Errorf("%d errors in the log, want one a fault:\n%s", n, log)
				}
			})
		})
	}
}

// slowly is a body that does not end while its request lasts.
type slowly struct{ context.Context }

func (s slowly) Read(p []byte) (int, error) {
	select {
	case <-s.Done():
		return 0, s.Err()
	case <-time.After(time.Second):
		return copy(p, " "), nil
	}
}

func (slowly) Close() error { return nil }

// endless is a body of blanks.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte(" "), len(p))), nil }

// TestState gives a Source state files that are not its own.
func TestState(t *testing.T) {
	state := filepath.Join(t.TempDir(), "keys")
	for _, c := range []struct{ text, want string }{
		{`{"url":"` + location + `","jwks":` + issuers() + `}`, "valid"},
		{`{"url":"https://elsewhere.example.com","jwks":` + issuers() + `}`, "no_keys"},
		{`{"url":"` + location + `","jwks":` + jwks() + `}`, "no_keys"},
		{`{"url":"` + location + `","jw`, "no_keys"},
		{``, "no_keys"},
	} {
		disk.Write(t, state, c.text)
		s := claims.New(claims.Options{State: state})
		s.Use(&rulesfile.JWT{Header: "authorization", JWKS: location, Algorithms: []string{"EdDSA"}})
		if _, outcome := ask(s, edToken("ed"), now); outcome != c.want {
			t.Errorf("%.40s: %s, want %s", c.text, outcome, c.want)
		}
	}
}

// TestUse changes what rules say of tokens while keys are fetched.
func TestUse(t *testing.T) {
	fetching(t, func(t *testing.T, from *server, again func() *claims.Source, _ *bytes.Buffer) {
		from.says(200, issuers())
		s := again()
		jwt := rulesfile.JWT{Header: "authorization", JWKS: location, Algorithms: []string{"EdDSA", "HS256"}}
		s.Use(&jwt)
		synctest.Wait()
		want(t, s, edToken("ed"), "valid")
		if n := from.asked.Load(); n != 1 {
			t.Errorf("what was in force already was fetched %d times", n)
		}
		s.Use(&rulesfile.JWT{Header: "authorization", JWKS: location, Issuer: "x", Algorithms: []string{"EdDSA"}})
		want(t, s, edToken("ed"), "issuer") // by the keys of the state file
		s.Use(nil)
		synctest.Wait()
		want(t, s, edToken("ed"), "")
		asked := from.asked.Load()
		time.Sleep(time.Hour)
		if n := from.asked.Load() - asked; n != 0 {
			t.Errorf("keys that nothing needs were fetched %d times", n)
		}
	})
}

// TestFile changes a file of keys, breaks it and puts another one in its place.
func TestFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "jwks.json")
		put := func(text string, stamp int64) {
			t.Helper()
			err := os.WriteFile(path+".new", []byte(text), 0o600)
			if err == nil {
				err = os.Chtimes(path+".new", time.Unix(stamp, 0), time.Unix(stamp, 0))
			}
			if err == nil {
				err = os.Rename(path+".new", path)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		put(jwks(jwk(keys().other.Public(), ``)), 1)
		s := open(t, rulesfile.JWT{JWKS: path}, "")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		for i, c := range []struct{ text, want string }{
			{jwks(jwk(keys().other.Public(), ``)), "signature"},
			{issuers(), "valid"},
			{"{", "valid"},
			{jwks(jwk(keys().other.Public(), ``)), "signature"},
			{issuers(), "valid"},
		} {
			put(c.text, int64(i+2))
			time.Sleep(time.Second)
			synctest.Wait()
			want(t, s, edToken("ed"), c.want)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		want(t, s, edToken("ed"), "valid")
		stop()
		<-done
	})
}
