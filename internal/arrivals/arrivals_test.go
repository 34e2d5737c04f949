package arrivals_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/internal/arrivals"
)

// An owner never tells its lines of room.
type owner struct{ arrivals.Owner }

func (owner) Watch(arrivals.Place, func()) (func(), time.Duration) { return nil, 0 }
func (owner) Divert(bool)                                          {}

// An asker's With returns the values of lacks in turn. asked is what its other methods return.
type asker struct {
	arrivals.Asker
	lacks []uint64
	later time.Duration
	asked func() (arrivals.Answer, error)
}

func (a *asker) With(context.Context, []int64) (lacks uint64, again time.Duration, err error) {
	if len(a.lacks) > 0 {
		lacks, a.lacks = a.lacks[0], a.lacks[1:]
	}
	return lacks, arrivals.Unknown, nil
}

func (a *asker) Ahead(context.Context) error { return nil }

func (a *asker) Look(context.Context, int) (arrivals.Answer, error) {
	return a.asked()
}

func (a *asker) Take(_ context.Context, later time.Duration, _ uint64) (arrivals.Answer, error) {
	if a.asked != nil {
		return a.asked()
	}
	a.later = max(a.later, later)
	return arrivals.Answer{Passes: later == 0, Again: later}, nil
}

// TestYields: a waiter leaves its room to an earlier waiter only if it would take what the earlier one
// needs, and not because room at another place was made while it asked.
func TestYields(t *testing.T) {
	for _, c := range []struct {
		name  string
		lacks []uint64
		want  time.Duration
	}{
		{"room for both", []uint64{0}, 0},
		{"room for one", []uint64{2, 0, 2}, time.Second},
		{"room comes back meanwhile", []uint64{2, 0, 0}, 0},
		{"room is made elsewhere meanwhile", []uint64{1, 0, 2}, 0},
		{"room is made elsewhere, and for one", []uint64{3, 0, 2}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lines := &arrivals.Lines{Owner: owner{}}
				var first, second arrivals.Waiter
				first.Join(&asker{}, 1, part(lines, "x"), part(lines, "shared"))
				a := &asker{lacks: c.lacks}
				second.Join(a, 1, part(lines, "y"), part(lines, "shared"))
				if _, err := second.Drive(t.Context(), false); err != nil || a.later != c.want {
					t.Errorf("it leaves its room for %v, %v, want %v", a.later, err, c.want)
				}
			})
		})
	}
}

// full is the answer of a store that has no room, and does not know when it will.
func full() (arrivals.Answer, error) { return arrivals.Answer{Again: arrivals.Unknown}, nil }

// part needs one unit at a place.
func part(lines *arrivals.Lines, name string) arrivals.Part {
	return arrivals.Part{Lines: lines, At: arrivals.Place{Name: name}, Cost: 1}
}

// TestRoomMadeWhileAsked: if room is made at a place while its first waiter, which stands behind
// another in a second line, hears that there is none, that waiter asks again.
func TestRoomMadeWhileAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := &arrivals.Lines{Owner: owner{}}
		var ahead, w arrivals.Waiter
		ahead.Join(&asker{}, arrivals.All, part(lines, "y"))
		looks := 0
		w.Join(&asker{asked: func() (arrivals.Answer, error) {
			if looks++; looks == 1 {
				lines.RoomMade(part(lines, "x").At)
				return full()
			}
			return arrivals.Answer{Passes: true}, nil
		}}, arrivals.All, part(lines, "x"), part(lines, "y"))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = w.Drive(ctx, false)
		}()
		synctest.Wait()
		if looks != 2 {
			t.Errorf("it looked %d times, want 2", looks)
		}
		stop()
		<-done
	})
}

// TestFirstAgain: a waiter that becomes the first of a line for the second time asks, whatever it heard
// the first time.
func TestFirstAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := &arrivals.Lines{Owner: owner{}}
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		room := 0
		waits := func(w *arrivals.Waiter, lacks uint64, parts ...arrivals.Part) {
			w.Join(&asker{asked: func() (arrivals.Answer, error) {
				if room == 0 {
					return arrivals.Answer{Again: arrivals.Unknown, Lacks: 1}, nil
				}
				room--
				return arrivals.Answer{Passes: true}, nil
			}}, lacks, parts...)
			all.Go(func() { _, _ = w.Drive(ctx, false) })
			synctest.Wait()
		}
		var z, y, a, b arrivals.Waiter
		x := part(lines, "x")
		z.Join(&asker{}, 2, x, part(lines, "z"))
		y.Join(&asker{}, arrivals.All, part(lines, "y"))
		waits(&a, 2, x, part(lines, "y")) // has room at x, as far as is known
		waits(&b, 1, x)                   // is denied at x
		leave, left := context.WithCancel(ctx)
		left()
		_, _ = y.Drive(leave, false) // so that it is the turn of a, which is denied at x too
		synctest.Wait()
		room = 2
		lines.RoomMade(x.At)
		synctest.Wait()
		if room != 0 {
			t.Errorf("%d units are left beside one that waits", room)
		}
		stop()
		all.Wait()
	})
}
