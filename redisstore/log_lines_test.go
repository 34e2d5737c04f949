package redisstore_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// A linesKept is a logger of go-redis.
type linesKept struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *linesKept) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *linesKept) Printf(_ context.Context, format string, v ...any) {
	fmt.Fprintf(l, format+"\n", v...)
}

func (l *linesKept) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestLogTo has a store fail to connect: a store leaves it to the program where go-redis
// logs that, and LogTo says where.
func TestLogTo(t *testing.T) {
	defer redisstore.LogTo(nil)
	programs, ours := &linesKept{}, &linesKept{}
	fail := func(port string) {
		store := openPlain(t, redisstore.Options{URL: "redis://127.0.0.1:" + port})
		_, _ = bind(t, store, "5/1h").Decide(ctx, meter.OpTake, "a", 1)
		_ = store.Close()
	}
	redis.SetLogger(programs)
	fail("2")
	redisstore.LogTo(slog.New(slog.NewTextHandler(ours, nil)))
	fail("3")
	redisstore.LogTo(nil)
	fail("4")
	for _, one := range []struct {
		who  *linesKept
		port string
	}{{programs, "2"}, {ours, "3"}} {
		for _, port := range []string{"2", "3", "4"} {
			if got := strings.Contains(one.who.String(), "127.0.0.1:"+port+":"); got != (port == one.port) {
				t.Errorf("port %s: %v in\n%s", port, got, one.who)
			}
		}
	}
}
