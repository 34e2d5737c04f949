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

// Answers are a driver without a server, which answers the calls of the loaded script.
type answers func(ctx context.Context, args []string) (any, error)

func (a answers) EvalSHA(ctx context.Context, _ string, _, args []string) (any, error) {
	return a(ctx, args)
}

// Eval is for what the store asks beside the requests, since EvalSHA never lacks a
// script.
func (answers) Eval(context.Context, string, []string, []string) (any, error) { return []any{}, nil }

func (answers) Cluster() bool { return false }
func (answers) Close()        {}

// after is how long an answer takes, unless the caller is gone before.
func after(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// never comes as an answer.
func never(ctx context.Context, _ []string) (any, error) { return nil, after(ctx, time.Hour) }

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
	var asked [][]string
	store := open(t, "", redisstore.Options{Timeout: patience, Driver: answers(func(_ context.Context, args []string) (any, error) {
		asked = append(asked, args)
		return int64(0), nil // a bucket is empty of backlog
	})})
	for _, text := range texts {
		if unit, _ := parse(t, text).Calendar(); unit != "" {
			continue
		}
		limit := bind(t, store, text)
		asked = nil
		for range 2 {
			_, _ = limit.Decide(ctx, meter.OpTake, "a", 1) // the answer is right for buckets alone
			time.Sleep(2 * time.Millisecond)
		}
		for _, args := range asked {
			args[2] = tooLate.ReplaceAllString(args[2], "")
		}
		if len(asked) != 2 || !slices.Equal(asked[0], asked[1]) {
			t.Errorf("%s: asked %q", text, asked)
		}
	}
}
