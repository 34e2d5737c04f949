package redisstore_test

import (
	"strings"
	"testing"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestForeignOpen has another program keep something where the open reservations of a
// key would be. Another form meets that key in a request that charges a second one as
// well: the request is charged as a whole, or not at all.
func TestForeignOpen(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.Addr)
	o := redisstore.Options{Prefix: "foreign"}
	store := open(t, server.URL(), o)
	former, limit := parse(t, "10/1h fixed_window").WithName("x"), parse(t, "5/1h sliding_log").WithName("x")
	before, err := store.Bind("n", former)
	if err != nil {
		t.Fatal(err)
	}
	b, err := store.Bind("n", limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "z"} {
		take(t, before, key, 1)
	}
	do(t, c, "SET", strings.Replace(redisstore.StateOf(o, "z", b), "}:", "}::open:", 1), "theirs")
	d, err := store.Decide(ctx, meter.OpTake, []stint.Layer{{Bound: b, Key: "a"}, {Bound: b, Key: "z"}}, 1)
	want := int64(4)
	if err == nil && d.Allowed {
		want = 3
	}
	for _, key := range []string{"a", "z"} {
		if d := take(t, b, key, 0); d.Remaining != want {
			t.Errorf("%d remain to %s, want %d, after %+v, %v", d.Remaining, key, want, d, err)
		}
	}
}
