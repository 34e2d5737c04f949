package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestKeyDenied has a user that may use the keys of one limit and not those of another,
// and many requests for both share calls: those that may be decided are.
func TestKeyDenied(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--user", "app", "on", ">right", "resetkeys", "~acl:*:fine/*", "~acl::*", "~acl:{*}::*", "&*", "+@all")
	store := open(t, "redis://app:right@"+server.Addr, redisstore.Options{Prefix: "acl"})
	for _, text := range []string{"1000/1000h", "1000/1000h sliding_log"} { // the short way and the long
		fine := made.Bound(t, store, "fine", parse(t, text))
		denied := made.Bound(t, store, "denied", parse(t, text))
		eventually(t, "the store does not decide", func() bool { _, err := fine.Decide(ctx, meter.OpTake, "first", 1); return err == nil })
		var callers sync.WaitGroup
		for i := range 64 {
			callers.Go(func() {
				for n := range int64(20) {
					if i%8 == 0 {
						if _, err := denied.Decide(ctx, meter.OpTake, text, 1); !errors.Is(err, redisstore.ErrConfiguration) {
							t.Errorf("%s: a key that is denied: %v", text, err)
						}
						continue
					}
					d, err := fine.Decide(ctx, meter.OpTake, fmt.Sprint(text, i), 1)
					if err != nil || d.Limit-d.Remaining != n+1 {
						t.Errorf("%s: %d units, want %d: %v", text, d.Limit-d.Remaining, n+1, err)
						return
					}
				}
			})
		}
		callers.Wait()
	}
	if st := store.Stats(); st.Open != 0 || st.Batches == 0 {
		t.Errorf("%+v: no breaker should be open, and calls shared", st)
	}
}

// TestCommandDenied has a user that may call the script and not a command in it: each
// request takes one call, and its error says what to look at.
func TestCommandDenied(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), redisstore.Options{})
	limit := bind(t, store, "1000/1000h")
	take(t, limit, "a", 1)
	server.CLI(t, "acl", "setuser", "default", "-set")
	server.CLI(t, "config", "resetstat")
	const asked = 100
	for range asked {
		_, err := limit.Decide(ctx, meter.OpTake, "a", 1)
		if !errors.Is(err, redisstore.ErrConfiguration) || !strings.Contains(err.Error(), "ACL LOG") {
			t.Fatal(err)
		}
	}
	info := server.CLI(t, "info", "commandstats")
	if !strings.Contains(info, fmt.Sprintf("cmdstat_evalsha:calls=%d,", asked)) || callsOf(t, server, "eval") > 0 {
		t.Errorf("%d requests: %s", asked, info)
	}
	if log := server.CLI(t, "acl", "log", "1"); !strings.Contains(log, "set") {
		t.Errorf("ACL LOG: %s", log)
	}
	server.CLI(t, "acl", "setuser", "default", "+set")
	if d := take(t, limit, "a", 1); d.Limit-d.Remaining != 2 {
		t.Errorf("%+v: what was denied was charged", d)
	}
}
