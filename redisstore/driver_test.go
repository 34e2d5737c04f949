package redisstore_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// A spy is a driver that notes what it is asked, and answers that a bucket is
// empty of backlog.
type spy struct{ args [][]string }

func (s *spy) EvalSHA(_ context.Context, _ string, _, args []string) (any, error) {
	s.args = append(s.args, args)
	return int64(0), nil
}

// Eval is for what the store asks beside the requests, since EvalSHA never lacks a
// script.
func (*spy) Eval(context.Context, string, []string, []string) (any, error) { return nil, nil }

func (*spy) Cluster() bool { return false }
func (*spy) Close()        {}

// TestNoClientTime sends the same for the same request at any time: the server
// is the clock. Bounds of calendars are looked up by the client's, and looked up
// again when the server says that they are none of its.
func TestNoClientTime(t *testing.T) {
	s := &spy{}
	store, err := redisstore.New(redisstore.Options{Driver: s, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, text := range texts {
		if l, err := stint.Parse(text); err != nil {
			t.Fatal(err)
		} else if unit, _ := l.Calendar(); unit != "" {
			continue
		}
		limit := bind(t, store, text)
		s.args = nil
		for range 2 {
			_, _ = limit.Decide(ctx, meter.OpTake, "a", 1) // the answer is right for buckets alone
			time.Sleep(2 * time.Millisecond)
		}
		if len(s.args) != 2 || !slices.Equal(s.args[0], s.args[1]) {
			t.Errorf("%s: asked %q", text, s.args)
		}
	}
}
