package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/redisstore"
)

// client is whose requests are counted.
const client = "192.0.2.133"

// A sized is a limit after some requests of a client.
type sized struct {
	name string
	use  func(ctx context.Context) error
}

// bytes prints what the keys of one client take, by MEMORY USAGE of all keys
// there are after its requests.
func (f *figures) bytes() error {
	s := f.server
	rows := [][]string{{"", "bytes", "keys"}}
	for _, one := range s.sizes() {
		if err := s.flush(); err != nil {
			return err
		}
		ctx := context.Background()
		if err := one.use(ctx); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		names, err := s.client.Keys(ctx, "*").Result()
		if err != nil {
			return err
		}
		sum := int64(0)
		for _, name := range names {
			n, err := s.client.MemoryUsage(ctx, name, 0).Result()
			if err != nil {
				return err
			}
			sum += n
		}
		rows = append(rows, []string{one.name, fmt.Sprint(sum), fmt.Sprint(len(names))})
	}
	f.Table(rows)
	fmt.Fprintf(f.Out, "\nAll rows are for the client %s and a limit named `api`. Redis also stores when each key expires.\n", client)
	return s.flush()
}

// sizes are all kinds, most of them after one request.
func (s *redisServer) sizes() []sized {
	var list []sized
	for _, one := range []struct {
		text  string
		takes int
	}{
		{"100/s", 1}, {"7/1m", 1}, {"100/s leaky_queue", 1}, {"100/s token_bucket_interval", 1}, {"100/1m fixed_window", 1},
		{"100 per day in Europe/Paris", 1}, {"100/1m sliding_counter", 1}, {"100/1m sliding_buckets", 1}, {"100000/1m sliding_buckets", 60},
		{"1000/1h sliding_log", 1}, {"1000/1h sliding_log", 1000},
	} {
		name := fmt.Sprintf("stint, `%s`", one.text)
		if one.takes > 1 {
			name += fmt.Sprintf(" after %d requests, evenly spread", one.takes)
		}
		list = append(list, sized{name, func(ctx context.Context) error { return s.spread(ctx, one.text, one.takes) }})
	}
	return list
}

// spread takes one unit the given number of times, evenly over a period.
func (s *redisServer) spread(ctx context.Context, text string, takes int) error {
	limit, err := stint.Parse(text)
	if err != nil {
		return err
	}
	now := time.Now().UnixNano()
	store, err := redisstore.New(redisstore.Options{Client: s.client, Now: func() int64 { return now }, Timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	defer store.Close()
	l, err := stint.NewLimiter(store, "api", limit)
	if err != nil {
		return err
	}
	for range takes {
		if err := admitted(l.Allow(ctx, client)); err != nil {
			return err
		}
		now += int64(limit.Period()) / int64(takes)
	}
	return nil
}
