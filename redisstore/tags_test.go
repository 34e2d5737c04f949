package redisstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestTagsDiffer starts a process whose keys would have other names than those of
// the processes that are there: it does not start, or, on a client that is ready,
// it does not decide; the others go on, and one with another prefix is none of
// theirs.
func TestTagsDiffer(t *testing.T) {
	server := redistest.Start(t)
	first := open(t, server.URL(), redisstore.Options{Prefix: "stint"})
	defer first.Close()
	if store, err := redisstore.New(redisstore.Options{URL: server.URL(), Tags: 64}); !errors.Is(err, redisstore.ErrConfiguration) {
		t.Errorf("%v: a store with other tags on the same server", err)
		if err == nil {
			store.Close()
		}
	} else if text := err.Error(); !strings.Contains(text, "64 hash tags") || !strings.Contains(text, `"256"`) || !strings.Contains(text, "stint::tags") {
		t.Errorf("%v: does not say which, and what to do", err)
	}
	c := client(t, server.Addr)
	late, err := redisstore.New(redisstore.Options{Client: c, Tags: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	limit := bind(t, late, "5/1h")
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		_, err := limit.Decide(ctx, meter.OpTake, "a", 1)
		if errors.Is(err, redisstore.ErrConfiguration) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v: decided beside a store with other tags", err)
		}
	}
	for _, o := range []redisstore.Options{{Prefix: "stint"}, {Prefix: "other", Tags: 64}} {
		one := open(t, server.URL(), o)
		if d := take(t, bind(t, one, "5/1h"), "b", 1); !d.Allowed {
			t.Errorf("%+v: %+v", o, d)
		}
		one.Close()
	}
	if ttl, err := do(t, c, "PTTL", redisstore.TagsKey("stint")).AsInt64(); err != nil || ttl <= 0 {
		t.Errorf("%s lives for %d ms, %v", redisstore.TagsKey("stint"), ttl, err)
	}
	do(t, c, "DEL", redisstore.TagsKey("stint")) // no process is left: the number may change
	open(t, server.URL(), redisstore.Options{Prefix: "stint", Tags: 64}).Close()
}

// TestTagsLater finds out about another number of tags on a server that is not
// there at the start.
func TestTagsLater(t *testing.T) {
	server := redistest.Start(t)
	open(t, server.URL(), redisstore.Options{Prefix: "stint"}).Close()
	proxy := redistest.NewProxy(t, server.Addr)
	proxy.Set(redistest.Fault{Refuse: true})
	store, err := redisstore.New(redisstore.Options{URL: proxy.URL(), Tags: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	limit := bind(t, store, "5/1h")
	if _, err := limit.Decide(ctx, meter.OpTake, "a", 1); !errors.Is(err, redisstore.ErrNotExecuted) {
		t.Fatalf("%v from a server that is not there", err)
	}
	proxy.Set(redistest.Fault{})
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := limit.Decide(ctx, meter.OpTake, "a", 1); errors.Is(err, redisstore.ErrConfiguration) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("other tags are not noticed")
		}
	}
}
