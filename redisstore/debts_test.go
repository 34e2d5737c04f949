package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/internal/redistest"
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
	shows(t, "a debt", "charged once")
}

func testCharge(t *testing.T, url string) {
	now := time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC).UnixNano()
	clock := func() int64 { return now }
	store, memory := open(t, url, redisstore.Options{Now: clock}), memstore.New(memstore.Options{Now: clock})
	defer store.Close()
	type owing struct {
		ours, theirs stint.Bound
		key          string
	}
	var all []owing
	var charges []fallback.Charge
	for i, text := range texts {
		theirs, err := memory.Bind(text, parse(t, text))
		if err != nil {
			t.Fatal(err)
		}
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
	defer store.Close()
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

// BenchmarkCharge posts debts as package fallback does: 512 keys at once.
func BenchmarkCharge(b *testing.B) {
	server := redistest.Start(b)
	proxy := redistest.NewProxy(b, server.Addr)
	for name, url := range map[string]string{"loopback": server.URL(), "2ms": proxy.URL()} {
		b.Run(name, func(b *testing.B) {
			if name == "2ms" {
				proxy.Set(redistest.Fault{Delay: 2 * time.Millisecond})
			}
			store := open(b, url, redisstore.Options{})
			defer store.Close()
			limit := bind(b, store, "100/1h")
			id := 0
			for b.Loop() {
				charges := make([]fallback.Charge, 512)
				for i := range charges {
					charges[i] = fallback.Charge{Bound: limit, Key: fmt.Sprint("key ", id, i), Units: 3}
				}
				if err := store.Charge(ctx, fmt.Sprint("id ", id), charges); err != nil {
					b.Fatal(err)
				}
				id++
			}
			b.ReportMetric(512*float64(b.N)/b.Elapsed().Seconds(), "keys/s")
		})
	}
}
