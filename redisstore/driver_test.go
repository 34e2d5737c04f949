package redisstore_test

import (
	"context"
	"regexp"
	"slices"
	"testing"
	"time"

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

// A front is a driver that does something about each call of a loaded script: call makes
// it.
type front struct {
	redisstore.Driver
	eval func(ctx context.Context, keys, args []string, call func(args []string) (any, error)) (any, error)
}

func (f *front) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	return f.eval(ctx, keys, args, func(args []string) (any, error) { return f.Driver.EvalSHA(ctx, sha, keys, args) })
}

// Slots says what the driver behind does, of a cluster.
func (f *front) Slots(ctx context.Context) ([]redisstore.SlotRange, error) {
	return f.Driver.(redisstore.Topology).Slots(ctx)
}

var tooLate = regexp.MustCompile("y[0-9]{16}$")

// TestNoClientTime sends the same for the same request at any time: the server
// is the clock. Bounds of calendars and when a call is too late are looked up by the client's,
// and looked up again when the server says that they are none of its.
func TestNoClientTime(t *testing.T) {
	s := &spy{}
	store := open(t, "", redisstore.Options{Driver: s, Timeout: patience})
	for _, text := range texts {
		if unit, _ := parse(t, text).Calendar(); unit != "" {
			continue
		}
		limit := bind(t, store, text)
		s.args = nil
		for range 2 {
			_, _ = limit.Decide(ctx, meter.OpTake, "a", 1) // the answer is right for buckets alone
			time.Sleep(2 * time.Millisecond)
		}
		for _, args := range s.args {
			args[2] = tooLate.ReplaceAllString(args[2], "")
		}
		if len(s.args) != 2 || !slices.Equal(s.args[0], s.args[1]) {
			t.Errorf("%s: asked %q", text, s.args)
		}
	}
}
