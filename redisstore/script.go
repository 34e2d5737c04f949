package redisstore

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/stint-dev/stint"
)

// The script, in the order in which its parts stand.
//
//go:embed lua/*.lua
var lua embed.FS

var parts = []string{
	"quick", "whole", "arguments", "bucket", "interval", "window", "counter", "list", "log", "parts", "layers", "reserve", "decide",
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

// mostLoads is how often one operation loads the script when it goes missing
// again and again.
const mostLoads = 10

// eval runs the script, and loads it where it was missing: then it had not run.
func (s *Store) eval(ctx context.Context, keys, args []string) (any, error) {
	if s.closed.Load() {
		return nil, stint.ErrClosed
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	for range mostLoads {
		loaded := s.loaded.Load()
		reply, err := s.driver.EvalSHA(ctx, sha, keys, args)
		if !noScript(err) {
			return reply, classify(err)
		}
		if err := s.load(ctx, loaded); err != nil {
			return nil, fmt.Errorf("%w: loading the script: %w", ErrNotExecuted, err)
		}
	}
	return nil, fmt.Errorf("%w: the script is gone whenever it is loaded", ErrNotExecuted)
}

// load loads the script, unless that was done since it had been so often.
func (s *Store) load(ctx context.Context, loaded int64) error {
	select {
	case s.loading <- struct{}{}:
		defer func() { <-s.loading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.loaded.Load() != loaded {
		return nil
	}
	if err := s.driver.Load(ctx, source); err != nil {
		return err
	}
	s.loaded.Add(1)
	return nil
}

// clock appends the time to the arguments, unless it is the server's.
func (s *Store) clock(args []string) []string {
	if s.now == nil {
		return args
	}
	return append(args, strconv.FormatInt(max(s.now(), 0)/1000, 10))
}
