package rulesapi_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/rulesapi"
)

// A stopped backend answers nothing from one of its calls on, until it is let go: those
// that ask wait as long as their contexts last.
type stopped struct {
	rulesapi.Backend
	revisions bool // it is stopped from the list of revisions on, else from a document on
	letGo     chan struct{}
}

func (s *stopped) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.letGo:
		return nil
	}
}

func (s *stopped) String() string { return "stopped" }

func (s *stopped) Revisions(ctx context.Context, _ int64, _ int) ([]rulesdb.Revision, error) {
	if s.revisions {
		if err := s.wait(ctx); err != nil {
			return nil, err
		}
	}
	return []rulesdb.Revision{{Number: 1, Hash: "h"}}, nil
}

func (s *stopped) Revision(ctx context.Context, _ int64) (rulesdb.Revision, error) {
	return rulesdb.Revision{Number: 1, Hash: "h", Name: "a.yaml", Document: []byte(document)}, s.wait(ctx)
}

// TestStoppedBackend asks a backend that has stopped for the rules, with deadlines from
// one second on: each caller gets the error of its own in time, also behind one that has
// none. When the backend goes on, that one gets the rules.
func TestStoppedBackend(t *testing.T) {
	for name, revisions := range map[string]bool{"list": true, "document": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backend := &stopped{revisions: revisions, letGo: make(chan struct{})}
				editor := edit(backend)
				var all sync.WaitGroup
				all.Go(func() {
					if f, err := editor.Rules(t.Context()); err != nil || len(f.Rules.Names()) != 2 {
						t.Errorf("without a deadline: %v", err)
					}
				})
				synctest.Wait()
				began := time.Now()
				for i := range 50 {
					most := time.Duration(1+i%5) * time.Second
					all.Go(func() {
						ctx, stop := context.WithTimeout(t.Context(), most)
						defer stop()
						_, err := editor.Rules(ctx)
						if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != most {
							t.Errorf("with %v: %v after %v", most, err, took)
						}
					})
				}
				time.Sleep(10 * time.Second)
				close(backend.letGo)
				all.Wait()
			})
		})
	}
}

// TestManyOperators has more requests wait for a backend than there may be: those
// beyond the bound are refused at once, and there is room again when it goes on.
func TestManyOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, more = 1024, 100
		backend := &stopped{revisions: true, letGo: make(chan struct{})}
		operator := func(*http.Request) (string, rulesdb.Role) { return "anna", rulesdb.Operator }
		h := rulesapi.NewHandler(edit(backend), rulesapi.HandlerOptions{Guest: operator})
		ask := func() (status int) {
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/v1/rules/history", nil))
			return answer.Code
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		got := make(map[int]int)
		for range most + more {
			all.Go(func() {
				status := ask()
				mu.Lock()
				defer mu.Unlock()
				got[status]++
			})
		}
		synctest.Wait()
		mu.Lock()
		if got[http.StatusServiceUnavailable] != more || len(got) != 1 {
			t.Errorf("while the backend is stopped: %v", got)
		}
		mu.Unlock()
		close(backend.letGo)
		all.Wait()
		if got[http.StatusOK] != most {
			t.Errorf("in the end: %v", got)
		}
		if status := ask(); status != http.StatusOK {
			t.Errorf("afterwards: %d", status)
		}
	})
}
