package redisstore

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint"
)

// The script, in the order in which its parts stand.
//
//go:embed lua/*.lua
var lua embed.FS

var parts = []string{
	"cross", "overflow", "one", "quick", "lease", "heartbeat", "room", "entries", "quicklog", "whole", "arguments", "bucket", "interval", "window", "counter", "list", "log", "parts", "layers", "push", "charge", "reserve", "take", "several", "decide",
}

// source is the whole script without its comments, sha its name in Redis.
var source, sha = assemble(parts...)

func assemble(parts ...string) (source, sha string) {
	var b strings.Builder
	for _, part := range parts {
		text, err := lua.ReadFile("lua/" + part + ".lua")
		if err != nil {
			panic(err) // embedded: the list above names a file that is not there
		}
		for line := range strings.Lines(string(text)) {
			if code := strings.TrimSpace(line); code != "" && !strings.HasPrefix(code, "--") {
				b.WriteString(line)
			}
		}
	}
	sum := sha1.Sum([]byte(b.String()))
	return b.String(), hex.EncodeToString(sum[:])
}

// eval runs the script, by its text where it is not loaded: then it had not run.
func (s *Store) eval(ctx context.Context, keys, args []string) (any, error) {
	return s.evalBy(ctx, time.Now().Add(s.timeout), keys, args)
}

// callerKey is of the context that a request came with, in that of its calls.
type callerKey struct{}

// within returns a context for a request that may take several calls: all of them
// together have the time that one has.
func (s *Store) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return s.by(ctx, time.Now().Add(s.timeout))
}

// by is within with a deadline.
func (s *Store) by(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	caller, ok := ctx.Value(callerKey{}).(context.Context)
	if !ok {
		caller = ctx
	}
	within, cancel := context.WithDeadline(ctx, deadline)
	return context.WithValue(within, callerKey{}, caller), cancel
}

// by returns when a stretch that begins now ends.
func by(d time.Duration) time.Time { return time.Now().Add(d) }

// evalBy is eval with a deadline.
func (s *Store) evalBy(ctx context.Context, deadline time.Time, keys, args []string) (any, error) {
	if s.closed.Load() {
		return nil, stint.ErrClosed
	}
	caller := ctx
	if of, ok := ctx.Value(callerKey{}).(context.Context); ok {
		caller = of
	}
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	reply, err := s.guarded(caller, within, keys, args)
	switch word(err) {
	case "READONLY": // of what was the master: the driver may know better by now
		reply, err = s.guarded(caller, within, keys, args)
	case "TRYAGAIN": // of a slot that is moving: some of the keys are here, some there
		select {
		case <-time.After(2 * time.Millisecond):
		case <-within.Done():
		}
		reply, err = s.guarded(caller, within, keys, args)
	}
	return reply, err
}

// run makes the call, whatever the state of the server.
func (s *Store) run(ctx context.Context, n *node, keys, args []string) (any, error) {
	keys, args = s.named(keys, args)
	reply, err := s.driver.EvalSHA(ctx, sha, keys, args)
	if word(err) == "NOSCRIPT" {
		return s.load(ctx, n, keys, args)
	}
	return reply, err
}

// clock appends the time to the arguments, unless it is the server's.
func (s *Store) clock(args []string) []string {
	if s.now == nil {
		return args
	}
	return append(args, strconv.FormatInt(max(s.now(), 0)/1000, 10))
}
