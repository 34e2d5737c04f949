package rulesapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/rulesapi"
	"github.com/stint-dev/stint/service/server"
)

// hung keeps tokens, and does not say which.
type hung struct{ rulesapi.Backend }

func (hung) Tokens(ctx context.Context) ([]rulesdb.Token, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// lately keeps tokens that are made while requests come, and counts the looks.
type lately struct {
	rulesapi.Backend
	mu     sync.Mutex
	tokens []rulesdb.Token
	looks  int
}

func (l *lately) Tokens(context.Context) ([]rulesdb.Token, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks++
	return slices.Clone(l.tokens), nil
}

func (l *lately) make(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tokens = append(l.tokens, rulesdb.Token{Name: text, Role: rulesdb.Viewer, Hash: rulesdb.HashToken(text)})
}

// here asks a handler for a path that is for who has a token.
func here(tokens rulesapi.Backend, guest func(*http.Request) (string, rulesdb.Role)) (ask func(token string) (status int)) {
	h := rulesapi.NewHandler(edit(tokens), rulesapi.HandlerOptions{
		Guest:  guest,
		Routes: []rulesapi.Route{{Method: "GET", Path: "/v1/here", Role: rulesdb.Viewer, Serve: func(*rulesapi.Request) (int, any, error) { return http.StatusOK, "here", nil }}},
	})
	return func(token string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/here", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		h.ServeHTTP(w, r)
		return w.Code
	}
}

// TestTokenEnds: whether a token has expired is what the database says, which dates
// it, and not this machine's clock.
func TestTokenEnds(t *testing.T) {
	backend := &lately{tokens: []rulesdb.Token{
		{Name: "good", Role: rulesdb.Viewer, Hash: rulesdb.HashToken("good"), Expires: time.Now().Add(-time.Hour)},
		{Name: "ended", Role: rulesdb.Viewer, Hash: rulesdb.HashToken("ended"), Expires: time.Now().Add(time.Hour), Ended: true},
	}}
	ask := here(backend, nil)
	for token, want := range map[string]int{"good": http.StatusOK, "ended": http.StatusUnauthorized} {
		if status := ask(token); status != want {
			t.Errorf("%s: %d, want %d", token, status, want)
		}
	}
}

// TestTokenJustMade: a token is good from the moment that it is made, also when
// tokens were read a moment before; a flood of bad ones reads them 20 times a second.
func TestTokenJustMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := new(lately)
		ask := here(backend, nil)
		backend.make("first")
		if status := ask("first"); status != http.StatusOK {
			t.Errorf("the first: %d", status)
		}
		time.Sleep(10 * time.Millisecond)
		backend.make("second")
		if status := ask("second"); status != http.StatusOK {
			t.Errorf("one made 10 ms after tokens were read: %d", status)
		}
		before, bad := backend.looks, new(sync.WaitGroup)
		for range 1000 {
			bad.Go(func() {
				if status := ask("bad"); status != http.StatusUnauthorized {
					t.Errorf("a bad one: %d", status)
				}
			})
			time.Sleep(time.Millisecond)
		}
		bad.Wait()
		if looks := backend.looks - before; looks > 22 {
			t.Errorf("1,000 bad tokens in a second: the database was read %d times", looks)
		}
	})
}

// TestTokensHang: while a database hangs, a client with a token in a file is answered
// at once, and the others are refused within seconds, and then at once for a while.
func TestTokensHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := here(hung{}, func(r *http.Request) (string, rulesdb.Role) {
			if server.Bearer(r) == "of-a-file" {
				return "vera", rulesdb.Viewer
			}
			return "", ""
		})
		ask := func(token string) (status int, took time.Duration) {
			began := time.Now() // of the bubble's clock
			return looks(token), time.Since(began)
		}
		waiting := make(chan struct{})
		go func() {
			defer close(waiting)
			if status, took := ask("of-the-database"); status != http.StatusServiceUnavailable || took > 5*time.Second {
				t.Errorf("a token of the database: %d after %v", status, took)
			}
		}()
		synctest.Wait()
		if status, took := ask("of-a-file"); status != http.StatusOK || took > 0 {
			t.Errorf("a token of a file: %d after %v", status, took)
		}
		<-waiting
		if status, took := ask("of-the-database"); status != http.StatusServiceUnavailable || took > 0 {
			t.Errorf("the next one: %d after %v", status, took)
		}
	})
}
