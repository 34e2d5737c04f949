package redisstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestCharge charges keys under limits of every kind at once: each as a debt is
// charged by a reservation, and once for an id.
func TestCharge(t *testing.T) {
	t.Parallel()
	one := redistest.Start(t)
	cluster := redistest.StartCluster(t, 3, 0)
	for name, url := range map[string]string{"one server": one.URL(), "cluster": cluster.URL()} {
		t.Run(name, func(t *testing.T) { testCharge(t, url) })
	}
}

func testCharge(t *testing.T, url string) {
	now := time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC).UnixNano()
	clock := func() int64 { return now }
	store, memory := open(t, url, redisstore.Options{Now: clock}), memstore.New(memstore.Options{Now: clock})
	type owing struct {
		ours, theirs stint.Bound
		key          string
	}
	var all []owing
	var charges []fallback.Charge
	for i, text := range texts {
		theirs := made.Bound(t, memory, text, parse(t, text))
		for k := range 3 {
			o := owing{bind(t, store, text), theirs, fmt.Sprint(text, k)}
			if k > 0 {
				take(t, o.ours, o.key, 1)
				take(t, o.theirs, o.key, 1)
			}
			units := int64(i%5 + k*3)
			all, charges = append(all, o), append(charges, fallback.Charge{Bound: o.ours, Key: o.key, Units: units})
			_, id, err := memory.Reserve(ctx, []stint.Layer{{Bound: theirs, Key: o.key}}, 0, time.Hour)
			if err == nil {
				_, err = memory.Settle(ctx, id, units)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 3 {
		if err := store.Charge(ctx, "once", charges); err != nil {
			t.Fatal(err)
		}
	}
	for i, o := range all {
		got, err1 := o.ours.Decide(ctx, meter.OpPeek, o.key, 1)
		want, err2 := o.theirs.Decide(ctx, meter.OpPeek, o.key, 1)
		if err1 != nil || err2 != nil || got.Allowed != want.Allowed || got.Remaining != want.Remaining {
			t.Errorf("%s owed %d: %+v, want %+v: %v, %v", o.key, charges[i].Units, got, want, err1, err2)
		}
	}
}

// What a limit of mode share owes is nothing to the server, and keeps no other
// debt from being charged.
func TestChargeBesideShare(t *testing.T) {
	store := open(t, redistest.Start(t).URL(), redisstore.Options{})
	share, err := store.Mode(redisstore.Share).Bind("own", parse(t, "10/h"))
	if err != nil {
		t.Fatal(err)
	}
	strict := bind(t, store, "10/h")
	if err := store.Charge(ctx, "once", []fallback.Charge{{Bound: share, Key: "a", Units: 3}, {Bound: strict, Key: "a", Units: 4}}); err != nil {
		t.Fatal(err)
	}
	if d, err := strict.Decide(ctx, meter.OpPeek, "a", 1); err != nil || d.Remaining != 6 {
		t.Errorf("%+v, %v: want 6 remaining", d, err)
	}
}

// TestChargeInPart has a node of a cluster refuse its part of the debts: which were
// charged, the error says.
func TestChargeInPart(t *testing.T) {
	t.Parallel()
	a := newApart(t, redisstore.Options{Timeout: patience})
	store, mine := a.store, "mine"
	there, _ := a.keys(mine)
	limit := bind(t, store, "100/24h")
	defer a.refuse(there, full, "C")()
	charges := []fallback.Charge{{Bound: limit, Key: there, Units: 4}, {Bound: limit, Key: mine, Units: 4}}
	err := store.Charge(ctx, "once", charges)
	var parts *fallback.ChargeError
	if !errors.As(err, &parts) || len(parts.Each) != 2 {
		t.Fatal(err)
	}
	for i, err := range parts.Each {
		if away := i%2 == 0; errors.Is(err, redisstore.ErrNotExecuted) != away || (err == nil) == away {
			t.Errorf("charge %d: %v", i, err)
		}
	}
	for key, want := range map[string]int64{mine: 96, there: 100} {
		if d := take(t, limit, key, 0); d.Remaining != want {
			t.Errorf("%d remain to %s, want %d", d.Remaining, key, want)
		}
	}
}

// TestChargeKeyDenied has an ACL deny the keys of one limit: the debts under others are
// charged.
func TestChargeKeyDenied(t *testing.T) {
	server := redistest.Start(t, "--user", "app", "on", ">right", "resetkeys", "~owed:*:fine/*", "~owed:*:well/*", "~owed::*", "~owed:{*}::*", "&*", "+@all")
	store := open(t, "redis://app:right@"+server.Addr, redisstore.Options{Prefix: "owed"})
	var charges []fallback.Charge
	bounds := map[string]stint.Bound{}
	for _, name := range []string{"denied", "fine", "refused", "well"} {
		b := made.Bound(t, store, name, parse(t, "100/24h"))
		bounds[name] = b
		for i := range 3 {
			charges = append(charges, fallback.Charge{Bound: b, Key: fmt.Sprint(i), Units: 2})
		}
	}
	for range 2 {
		err := store.Charge(ctx, "once", charges)
		var parts *fallback.ChargeError
		if !errors.As(err, &parts) {
			t.Fatal(err)
		}
		for i, err := range parts.Each {
			if denied := i/3%2 == 0; errors.Is(err, redisstore.ErrConfiguration) != denied || (err == nil) == denied {
				t.Errorf("charge %d: %v", i, err)
			}
		}
	}
	for _, name := range []string{"fine", "well"} {
		if d := take(t, bounds[name], "1", 0); d.Remaining != 98 {
			t.Errorf("%d remain under %s, want 98", d.Remaining, name)
		}
	}
}

// TestChargeOneNodeAway has package fallback post debts to a cluster of which one node
// refuses them: those of the other nodes are charged, once, and that node's when it
// takes them.
func TestChargeOneNodeAway(t *testing.T) {
	t.Parallel()
	a := newApart(t, redisstore.Options{Timeout: patience})
	mine := "mine"
	there, _ := a.keys(mine)
	front := fallback.NewFailover(a.store, fallback.Options{Local: memstore.New(memstore.Options{})})
	defer front.Close()
	pair, err := front.Bind(nil, "api", parse(t, "100/24h"))
	if err != nil {
		t.Fatal(err)
	}
	allow := a.refuse(there, full, "C")
	for _, key := range []string{there, mine} {
		take(t, pair.Local, key, 5)
		pair.Owe(errors.New("connection refused"), key, 5, true)
	}
	eventually(t, "the debt to the node that is well is not charged", func() bool { return take(t, pair.Main, mine, 0).Remaining == 95 })
	time.Sleep(300 * time.Millisecond) // further tries
	if d, st := take(t, pair.Main, mine, 0), front.Stats(); d.Remaining != 95 || st.Posted != 5 || st.Owing != 1 {
		t.Errorf("%+v, %+v", d, st)
	}
	allow()
	eventually(t, "the debt to the other node is not charged", func() bool { return take(t, pair.Main, there, 0).Remaining == 95 })
	if d := take(t, pair.Main, mine, 0); d.Remaining != 95 {
		t.Errorf("%+v", d)
	}
}
