package redisstore_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// A deaf driver loses what the server answers, once it is on.
type deaf struct {
	redisstore.Driver
	on atomic.Bool
}

func (d *deaf) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	reply, err := d.Driver.EvalSHA(ctx, sha, keys, args)
	if d.on.Load() {
		return nil, io.ErrUnexpectedEOF
	}
	return reply, err
}

// TestLostReservation: the error of a reservation whose answer was lost has its ID, by which it can be
// cancelled.
func TestLostReservation(t *testing.T) {
	server := redistest.Start(t)
	d := &deaf{Driver: redisstore.NewDriver(client(t, server.Addr))}
	store := open(t, "", redisstore.Options{Driver: d})
	for _, text := range []string{"5/24h", "5/24h sliding_log ban 1h", "5/24h fixed_window"} {
		bound := bind(t, store, text)
		layers := []stint.Layer{{Bound: bound, Key: "a"}}
		for name, reserve := range map[string]func() (stint.Decision, stint.ReservationID, error){
			"Reserve": func() (stint.Decision, stint.ReservationID, error) { return store.Reserve(ctx, layers, 3, time.Hour) },
			"TakeTurn": func() (stint.Decision, stint.ReservationID, error) {
				return store.TakeTurn(ctx, layers, 3, time.Hour, 0)
			},
		} {
			take(t, bound, "a", 1)
			d.on.Store(true)
			_, _, err := reserve()
			d.on.Store(false)
			var lost *stint.LostReservation
			if !errors.As(err, &lost) || !errors.Is(err, stint.ErrAmbiguous) {
				t.Fatalf("%s, %s: %v", text, name, err)
			}
			left := func() int64 {
				peek, err := bound.Decide(ctx, meter.OpPeek, "a", 1)
				if err != nil {
					t.Fatal(err)
				}
				return peek.Remaining
			}
			if n := left(); n != 1 {
				t.Fatalf("%s, %s: %d left while it is open, want 1", text, name, n)
			}
			if _, err := store.Settle(ctx, lost.ID, 0); err != nil || left() != 4 {
				t.Errorf("%s, %s: cancelled: %v, %d left, want 4", text, name, err, left())
			}
			if err := store.Reset(ctx, layers); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestLostPeek: a peek has charged nothing, whatever became of its answer, whoever asks for it.
func TestLostPeek(t *testing.T) {
	server := redistest.Start(t)
	d := &deaf{Driver: redisstore.NewDriver(client(t, server.Addr))}
	store := open(t, "", redisstore.Options{Driver: d})
	for _, text := range []string{"5/24h", "5/24h sliding_log ban 1h", "5/24h fixed_window", "500/24h", "5 per day in UTC"} {
		for _, mode := range []redisstore.Mode{redisstore.Strict, redisstore.Lease, redisstore.Async} {
			bound := bindIn(t, store, mode, text)
			layers := []stint.Layer{{Bound: bound, Key: text + mode.String()}}
			d.on.Store(true)
			_, err := store.Decide(ctx, meter.OpPeek, layers, 1)
			_, id, turn := store.TakeTurn(ctx, layers, 1, time.Hour, 0) // it peeks first
			d.on.Store(false)
			if errors.Is(err, stint.ErrAmbiguous) {
				t.Errorf("%s, %v: the peek: %v", text, mode, err)
			}
			if lost := new(stint.LostReservation); errors.Is(turn, stint.ErrAmbiguous) && !errors.As(turn, &lost) {
				t.Errorf("%s, %v: the turn: %q, %v", text, mode, id, turn)
			}
		}
	}
}
