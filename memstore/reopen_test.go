package memstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/meter"
)

// saved returns a snapshot of a store.
func saved(t testing.TB, s *memstore.Store) *bytes.Buffer {
	t.Helper()
	file := new(bytes.Buffer)
	if err := s.Save(file); err != nil {
		t.Fatal(err)
	}
	return file
}

// loaded returns a new store of what a snapshot holds.
func loaded(t testing.TB, file []byte, o memstore.Options) *memstore.Store {
	t.Helper()
	s := memstore.New(o)
	if err := s.Load(bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	return s
}

// restarted returns what a snapshot of a store becomes in another process.
func restarted(t testing.TB, s *memstore.Store, o memstore.Options) *memstore.Store {
	t.Helper()
	return loaded(t, saved(t, s).Bytes(), o)
}

// meanwhile is a file, and does something whenever bytes are written to it.
type meanwhile struct {
	bytes.Buffer
	do func()
}

func (m *meanwhile) Write(b []byte) (int, error) {
	m.do()
	return m.Buffer.Write(b)
}

// reserve reserves cost units, which must pass.
func reserve(t testing.TB, l *stint.Limiter, key string, cost int64, ttl time.Duration) stint.ReservationID {
	t.Helper()
	d, token, err := l.Reserve(ctx, key, cost, ttl)
	if err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	return token.ID()
}

// twins are a store and one that is restarted, which must answer alike.
type twins struct {
	t       *testing.T
	rng     *rand.Rand
	clock   clock
	options memstore.Options
	stores  [2]*memstore.Store
	limits  [][]stint.Limit // under each name
	bounds  [2][]stint.Bound
	tokens  [][2]stint.ReservationID
	log     []string
}

func (w *twins) bind(i int) {
	w.bounds[i] = nil
	for n, limits := range w.limits {
		b, err := w.stores[i].Bind(fmt.Sprint("limits", n), limits...)
		if err != nil {
			w.t.Fatal(err)
		}
		w.bounds[i] = append(w.bounds[i], b)
	}
}

// restart takes some time, in which reservations expire.
func (w *twins) restart() {
	file := saved(w.t, w.stores[1])
	w.clock.advance(time.Duration(w.rng.Int64N(int64(20 * time.Second))))
	w.stores[1] = loaded(w.t, file.Bytes(), w.options)
	w.log = append(w.log, "restart")
	w.bind(1)
}

func (w *twins) alike(what string, do func(i int) (stint.Decision, error)) {
	w.t.Helper()
	a, errA := do(0)
	b, errB := do(1)
	w.log = append(w.log, fmt.Sprint(w.clock.now(), " ", what, " ", a, errA))
	if a != b || fmt.Sprint(errA) != fmt.Sprint(errB) {
		for _, line := range w.log {
			w.t.Log(line)
		}
		w.t.Fatalf("%v: %s:\n  after the restart %+v, %v\n without a restart %+v, %v", w.limits, what, b, errB, a, errA)
	}
}

// layers returns layers on random keys, the same in both stores.
func (w *twins) layers() (out [2][]stint.Layer) {
	for n := range w.limits {
		if len(out[0]) > 0 && w.rng.IntN(2) == 0 {
			continue
		}
		key, weight := fmt.Sprint("key", w.rng.IntN(2)), w.rng.Int64N(3)
		for i := range out {
			out[i] = append(out[i], stint.Layer{Bound: w.bounds[i][n], Key: key, Weight: weight})
		}
	}
	return out
}

func (w *twins) step() {
	layers, cost := w.layers(), w.rng.Int64N(6)
	name := func(verb string) string {
		out := fmt.Sprint(verb, " ", cost)
		for _, l := range layers[0] {
			out += fmt.Sprint(" ", l.Bound.Name(), " ", l.Key, " × ", l.Weight)
		}
		return out
	}
	switch w.rng.IntN(12) {
	case 0, 1, 2, 3:
		ttl := time.Duration(1 + w.rng.Int64N(int64(2*time.Minute)))
		var tokens [2]stint.ReservationID
		w.alike(name(fmt.Sprint("reserve ", len(w.tokens))), func(i int) (d stint.Decision, err error) {
			d, tokens[i], err = w.stores[i].Reserve(ctx, layers[i], cost, ttl)
			return d, err
		})
		if tokens[0] != "" {
			w.tokens = append(w.tokens, tokens)
		}
	case 4, 5, 6:
		w.alike(name("take"), func(i int) (stint.Decision, error) { return w.stores[i].Decide(ctx, meter.OpTake, layers[i], cost) })
	case 7:
		if w.rng.IntN(4) == 0 {
			w.alike(name("refund"), func(i int) (stint.Decision, error) { return w.stores[i].Refund(ctx, layers[i], cost) })
		}
		if w.rng.IntN(10) == 0 {
			w.alike(name("reset"), func(i int) (stint.Decision, error) { return stint.Decision{}, w.stores[i].Reset(ctx, layers[i]) })
		}
	default:
		if n := len(w.tokens); n > 0 {
			at := w.rng.IntN(n)
			token := w.tokens[at]
			w.tokens = slices.Delete(w.tokens, at, at+1)
			w.alike(fmt.Sprint("settle ", at, " at ", cost), func(i int) (stint.Decision, error) { return w.stores[i].Settle(ctx, token[i], cost) })
		}
	}
	if w.rng.IntN(3) > 0 {
		w.clock.advance(time.Duration(w.rng.Int64N(int64(20 * time.Second))))
	}
}

// TestReservationsRestarted runs random histories against two stores, one of
// which goes through a snapshot again and again: what it answers is the same.
func TestReservationsRestarted(t *testing.T) {
	kinds := []string{
		"10/1m", "7/1m burst 5", "10/1m burst 4 token_bucket_interval", "10/1m burst 8 leaky_queue", "10/1m fixed_window",
		"10/1m sliding_log", "10/1m sliding_counter", "10/1m sliding_buckets parts 7", "10/1m fixed_window count_denied", "10/1m fixed_window from first", "10/1m sliding_log count_denied",
		"10/day in Europe/Paris",
	}
	for seed := range uint64(600) {
		w := &twins{t: t, rng: rand.New(rand.NewPCG(seed, 11))}
		w.clock.advance(1_000_000 * time.Hour)
		w.options = memstore.Options{Now: w.clock.now}
		w.limits = [][]stint.Limit{{limit(t, kinds[seed%uint64(len(kinds))])}}
		for range w.rng.IntN(3) {
			other := limit(t, kinds[w.rng.IntN(len(kinds))])
			w.limits = append(w.limits, []stint.Limit{other, limit(t, "40/1h").WithName("long")})
		}
		for i := range w.stores {
			w.stores[i] = memstore.New(w.options)
			w.bind(i)
		}
		for i := range 120 {
			w.step()
			if i%30 == 20 {
				w.restart()
			}
		}
	}
}

// TestReservationsPaired does it with more open on one key than are kept apart.
func TestReservationsPaired(t *testing.T) {
	w := &twins{t: t, rng: rand.New(rand.NewPCG(1, 2)), limits: [][]stint.Limit{{limit(t, "100/1s burst 3000")}}}
	w.options = memstore.Options{Now: w.clock.now}
	for i := range w.stores {
		w.stores[i] = memstore.New(w.options)
		w.bind(i)
	}
	for range 2500 {
		var tokens [2]stint.ReservationID
		w.alike("reserve", func(i int) (d stint.Decision, err error) {
			d, tokens[i], err = w.stores[i].Reserve(ctx, []stint.Layer{{Bound: w.bounds[i][0], Key: "a"}}, 1, time.Hour)
			return d, err
		})
		w.tokens = append(w.tokens, tokens)
	}
	w.stores[1] = restarted(t, w.stores[1], w.options)
	w.bind(1)
	for range 2500 {
		at := w.rng.IntN(len(w.tokens))
		w.alike("settle", func(i int) (stint.Decision, error) { return w.stores[i].Settle(ctx, w.tokens[at][i], 0) })
		w.tokens = slices.Delete(w.tokens, at, at+1)
		w.clock.advance(time.Millisecond)
	}
}

// TestReservationForgivenRestarted is the case that needs what a key ran down
// to since: the bucket was full again before 10 were taken, so cancelling an
// earlier reservation frees nothing.
func TestReservationForgivenRestarted(t *testing.T) {
	s, c := storeAt(0, memstore.Options{})
	l := limiter(t, s, "1/s burst 10")
	id := reserve(t, l, "a", 5, time.Hour)
	c.advance(5 * time.Second)
	taken(t, l, "a", 10)
	s = restarted(t, s, memstore.Options{Now: c.now})
	l = limiter(t, s, "1/s burst 10")
	if d, err := l.Reservation(id).Settle(ctx, 0); err != nil || d.Remaining != 0 {
		t.Errorf("%+v, %v: cancelled, it frees what had drained", d, err)
	}
}

// TestReservationRestartedUnbound settles before the limit is bound, after it
// was changed, and when it has expired.
func TestReservationRestartedUnbound(t *testing.T) {
	s, c := storeAt(0, memstore.Options{})
	l := limiter(t, s, "10/1h")
	early, late, gone := reserve(t, l, "a", 3, time.Hour), reserve(t, l, "a", 3, time.Hour), reserve(t, l, "a", 3, time.Second)
	c.advance(time.Second)
	s = restarted(t, s, memstore.Options{Now: c.now})
	if n := s.Stats().Reservations; n != 2 {
		t.Errorf("%d reservations, want 2", n)
	}
	if _, err := s.Settle(ctx, gone, 0); !errors.Is(err, stint.ErrReservation) {
		t.Errorf("expired: %v", err)
	}
	if d, err := s.Settle(ctx, early, 0); err != nil || d.Remaining != 4 {
		t.Errorf("not bound: %+v, %v", d, err)
	}
	l = limiter(t, s, "20/1h")
	if d, err := l.Take(ctx, "a", 1); err != nil || d.Remaining != 13 {
		t.Errorf("of a limit that has changed: %+v, %v", d, err)
	}
	if d, err := s.Settle(ctx, late, 0); err != nil || d.Remaining != 3 {
		t.Errorf("of a limit that has changed: %+v, %v, want nothing back", d, err)
	}
	if d, err := l.Peek(ctx, "a", 1); err != nil || d.Remaining != 13 {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestReservationsRestartedFull has no room for all: those that expire last are
// kept, the others are unknown and stand as charged.
func TestReservationsRestartedFull(t *testing.T) {
	for _, text := range []string{"100/1h", "100/1h sliding_log", "100/1h leaky_queue burst 99", "100/1h sliding_counter"} {
		s, c := storeAt(0, memstore.Options{})
		l := limiter(t, s, text)
		var ids []stint.ReservationID
		for i := range 10 {
			ids = append(ids, reserve(t, l, "a", 5, time.Hour+time.Duration(i)))
		}
		s = restarted(t, s, memstore.Options{MaxReservations: 4, Now: c.now})
		if st := s.Stats(); st.Reservations != 4 || st.FullReservations != 6 {
			t.Errorf("%s: %d open, %d found no room", text, st.Reservations, st.FullReservations)
		}
		limiter(t, s, text)
		for i, id := range slices.Backward(ids) {
			d, err := s.Settle(ctx, id, 0)
			if i < 6 != errors.Is(err, stint.ErrReservation) {
				t.Errorf("%s, reservation %d: %v", text, i, err)
			}
			if i == 6 && d.Remaining != 70 {
				t.Errorf("%s: %+v, want 70 remaining: what was dropped stands", text, d)
			}
		}
	}
}

// TestReservationsOnCells restarts a full store: newcomers settle on the cells
// that they share.
func TestReservationsOnCells(t *testing.T) {
	for _, text := range []string{"50/1h", "50/1h sliding_log", "50/1h sliding_counter", "50/1h sliding_buckets parts 7", "50/1h burst 45 token_bucket_interval"} {
		w := &twins{t: t, rng: rand.New(rand.NewPCG(3, 4)), limits: [][]stint.Limit{{limit(t, text)}}}
		w.clock.advance(time.Hour)
		w.options = memstore.Options{MaxKeys: 64, Now: w.clock.now}
		for i := range w.stores {
			w.stores[i] = memstore.New(w.options)
			w.bind(i)
			for k := range 64 {
				w.bounds[i][0].Allow(ctx, fmt.Sprint("old", k), 40)
			}
		}
		w.stores[1] = restarted(t, w.stores[0], w.options) // cells go by the same secret
		w.bind(1)
		for i := range 400 {
			w.step()
			if i%50 == 40 {
				w.restart()
			}
		}
		if w.stores[0].Stats().Overflowed == 0 {
			t.Errorf("%s: nobody shares a cell", text)
		}
	}
}

// TestReservationCutRestarted cancels what a log has gathered into one entry.
func TestReservationCutRestarted(t *testing.T) {
	s, c := storeAt(0, memstore.Options{})
	l := limiter(t, s, "10/1m sliding_log")
	var ids []stint.ReservationID
	for _, cost := range []int64{3, 3, 4} {
		ids = append(ids, reserve(t, l, "a", cost, time.Hour))
		c.advance(time.Second)
	}
	l.Reservation(ids[2]).Settle(ctx, 8)
	s = restarted(t, s, memstore.Options{Now: c.now})
	l = limiter(t, s, "10/1m sliding_log")
	l.Reservation(ids[0]).Settle(ctx, 0)
	if d, err := l.Reservation(ids[1]).Settle(ctx, 0); err != nil || d.Remaining != 2 {
		t.Errorf("%+v, %v: want 8 in use", d, err)
	}
}

// TestReservationExpiredRestarted has one expire while no process runs: how low
// the key was since still counts for the one before it.
func TestReservationExpiredRestarted(t *testing.T) {
	s, c := storeAt(0, memstore.Options{})
	l := limiter(t, s, "1/s burst 10")
	id := reserve(t, l, "a", 5, time.Hour)
	c.advance(2 * time.Second)
	reserve(t, l, "a", 1, 3*time.Second)
	c.advance(2500 * time.Millisecond)
	taken(t, l, "a", 8)
	file := saved(t, s)
	c.advance(time.Second)
	s = loaded(t, file.Bytes(), memstore.Options{Now: c.now})
	if d, err := s.Settle(ctx, id, 0); err != nil || d.Remaining != 3 || d.ResetAfter != 7*time.Second {
		t.Errorf("%+v, %v: want 1.5 given back of a backlog of 8.5", d, err)
	}
}

// TestReserveDuringSave reserves and settles while a snapshot is written, on
// keys that are in it already: what of it can be settled afterwards frees
// nothing that others have taken.
func TestReserveDuringSave(t *testing.T) {
	for _, text := range []string{
		"1000/1h", "1000/1h burst 1000 token_bucket_interval", "1000/1h burst 999 leaky_queue", "1000/1h fixed_window",
		"1000/1h sliding_log", "1000/1h sliding_counter", "1000/1h sliding_buckets",
	} {
		s, c := storeAt(1_000_000*time.Hour, memstore.Options{})
		l := limiter(t, s, text)
		for i := range 50 {
			taken(t, l, fmt.Sprint(i), 7)
		}
		many, _ := stint.NewLimiter(s, "many", limit(t, "1/1h"))
		for i := range 20_000 { // more than is written at once
			taken(t, many, fmt.Sprint("many", i), 1)
		}
		var ids []stint.ReservationID
		file := &meanwhile{do: func() {
			c.advance(time.Millisecond)
			for i := range 50 {
				if id := reserve(t, l, fmt.Sprint(i), 5, time.Hour); i%3 > 0 {
					ids = append(ids, id)
				} else if _, err := l.Reservation(id).Settle(ctx, 0); err != nil {
					t.Fatal(err)
				}
			}
		}}
		file.do()
		if err := s.Save(file); err != nil {
			t.Fatal(err)
		}
		next := loaded(t, file.Bytes(), memstore.Options{Now: c.now})
		if open := next.Stats().Reservations; open == 0 || open == len(ids) {
			t.Fatalf("%s: %d of %d reservations", text, open, len(ids))
		}
		l = limiter(t, next, text)
		for _, id := range ids {
			next.Settle(ctx, id, 0)
		}
		for i := range 50 {
			if d, err := l.Peek(ctx, fmt.Sprint(i), 1); err != nil || d.Remaining > d.Limit-7 {
				t.Errorf("%s: %+v, %v: of 7 taken some are gone", text, d, err)
			}
		}
	}
}
