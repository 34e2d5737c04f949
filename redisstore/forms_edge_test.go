package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// TestFormsMetByDenial has a form meet a key with a denial while another process asks
// under the one before it, which has reservations: the form before loses nothing that
// it counts, and all is as in memory.
func TestFormsMetByDenial(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_000_000_000_000)
	clock := func() int64 { return now }
	for i, forms := range [][]string{
		{"10/1m", "5/1h"},
		{"10/1m sliding_log", "5/1h"},
		{"10/1m fixed_window", "5/1h fixed_window"},
		{"10/1m", "5/1h", "4/2h", "3/3h", "2/4h", "1/5h"},
	} {
		t.Run(fmt.Sprint(forms), func(t *testing.T) {
			redis := open(t, server.URL(), redisstore.Options{Prefix: fmt.Sprint("denial", i), Now: clock})
			memory := memstore.New(memstore.Options{Now: clock})
			var all [2][]stint.Bound
			for k, s := range []stint.Store{redis, memory} {
				for _, text := range forms {
					all[k] = append(all[k], formed(t, s, text))
				}
			}
			same := func(what string, do func(k int, s stint.Store) (stint.Decision, error)) {
				t.Helper()
				got, err := do(0, redis)
				want, err2 := do(1, memory)
				if err != nil || err2 != nil || got != micros(want) {
					t.Fatalf("%s:\n got %+v, %v\nwant %+v, %v", what, got, err, micros(want), err2)
				}
			}
			var tokens [2]stint.ReservationID
			same("reserve", func(k int, s stint.Store) (d stint.Decision, err error) {
				d, tokens[k], err = s.Reserve(ctx, []stint.Layer{{Bound: all[k][0], Key: "key"}}, 8, time.Hour)
				return d, err
			})
			for round := range 3 {
				for n := range forms {
					if n == 0 && round == 0 {
						continue
					}
					same(fmt.Sprintf("round %d, %s", round, forms[n]), func(k int, _ stint.Store) (stint.Decision, error) {
						return all[k][n].Decide(ctx, meter.OpTake, "key", 6)
					})
				}
				now += int64(time.Second)
			}
			same("cancel", func(k int, s stint.Store) (stint.Decision, error) { return s.Settle(ctx, tokens[k], 0) })
			for n := range forms {
				same("after it, "+forms[n], func(k int, _ stint.Store) (stint.Decision, error) {
					return all[k][n].Decide(ctx, meter.OpPeek, "key", 1)
				})
			}
		})
	}
}

// TestFormsRefundWeighed refunds requests of a weight under a form that the key has met,
// and under one that it has not: each form gets back the units of the weight, once.
func TestFormsRefundWeighed(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_790_000_000_000_000_000)
	clock := func() int64 { return now }
	for i, c := range []struct {
		met  bool
		want [2]int64 // left under the first and the second form, of 20 and 40
	}{{true, [2]int64{14, 34}}, {false, [2]int64{14, 34}}} {
		for k, s := range []stint.Store{
			open(t, server.URL(), redisstore.Options{Prefix: fmt.Sprint("weighed", i), Now: clock}),
			memstore.New(memstore.Options{Now: clock}),
		} {
			first, second := formed(t, s, "20/1h fixed_window"), formed(t, s, "40/1h sliding_log")
			layer := func(b stint.Bound) []stint.Layer { return []stint.Layer{{Bound: b, Key: "key", Weight: 3}} }
			for range 4 { // 12 units
				if _, err := s.Decide(ctx, meter.OpTake, layer(first), 1); err != nil {
					t.Fatal(err)
				}
			}
			if c.met {
				if _, err := s.Decide(ctx, meter.OpTake, layer(second), 1); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Refund(ctx, layer(second), 1); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.Refund(ctx, layer(second), 2); err != nil {
				t.Fatal(err)
			}
			for n, b := range []stint.Bound{first, second} {
				d, err := b.Decide(ctx, meter.OpPeek, "key", 0)
				if err != nil || d.Remaining != c.want[n] {
					t.Errorf("store %d, met %v: form %d has %d left, want %d; %v", k, c.met, n, d.Remaining, c.want[n], err)
				}
			}
		}
	}
}

// TestFormsCalendarThereAndBack changes between a limit by the calendar and another,
// across many ends of its window: no form lets pass more than it would by itself have
// let pass of the same requests.
func TestFormsCalendarThereAndBack(t *testing.T) {
	server := redistest.Start(t)
	rounds := 60
	if testing.Short() {
		rounds = 20
	}
	passed := 0
	for round := range rounds {
		rnd := rand.New(rand.NewPCG(uint64(round), 3))
		now := int64(1_790_000_000_000_000_000)
		clock := func() int64 { return now }
		s := open(t, server.URL(), redisstore.Options{Prefix: fmt.Sprint("calendar", round), Now: clock})
		texts := []string{
			[]string{"10 per day in UTC", "10 per day in Europe/Paris", "25 per month in UTC"}[round%3],
			[]string{"12/2d", "8/1h sliding_log", "15/36h fixed_window", "9/5m"}[rnd.IntN(4)],
		}
		unnamed := round%2 == 1 // as limits of different identities
		var forms, alone [2]stint.Bound
		for i, text := range texts {
			if forms[i] = formed(t, s, text); unnamed {
				forms[i] = bound(t, s, text)
			}
			alone[i] = formed(t, memstore.New(memstore.Options{Now: clock}), text)
		}
		i := 0
		for step := range 300 {
			switch rnd.IntN(8) {
			case 0:
				i = 1 - i
			case 1:
				now += rnd.Int64N(int64(20 * time.Hour))
			case 2: // to about the end of a day
				day := int64(24 * time.Hour)
				now += day - now%day + (rnd.Int64N(5)-2)*1000
			default:
				now += rnd.Int64N(int64(time.Minute))
			}
			now -= now % 1000
			cost := 1 + rnd.Int64N(3)
			if take(t, forms[i], "key", cost).Allowed {
				passed++
				if d := take(t, alone[i], "key", cost); !d.Allowed {
					t.Fatalf("round %d, step %d: %s lets %d pass, which by itself it would not: %+v", round, step, texts[i], cost, d)
				}
			}
		}
	}
	if passed < 30*rounds {
		t.Errorf("%d passed: too little to tell", passed)
	}
}
