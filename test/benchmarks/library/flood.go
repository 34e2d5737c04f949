package library

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"

	"github.com/stint-dev/stint/test/benchmarks/report"
)

// A deluge is a store under a bound, with keys that were there before the
// flood: some that have used up their limit, and some that have used part.
type deluge struct {
	store     *memstore.Store
	limiter   *stint.Limiter
	exhausted []string
	half      []string

	mostBytes, mostHeap float64
	leaked              int // exhausted keys that were let through
	admitted            int // new keys that were let through
	spent               time.Duration
}

const (
	perHour = 6 // the limit
	used    = 2 // by half the established keys
)

// flood sends ten million new keys at a store with a bound of one million.
func (f *figures) flood() error {
	bound, flood, established := 1<<20, 10_000_000, 10_000
	if f.Short {
		bound, flood, established = 1<<14, 100_000, 1000
	}
	before := heap()
	d, err := newDeluge(bound, established)
	if err != nil {
		return err
	}
	if err := d.pour(flood, before); err != nil {
		return err
	}
	wrong, err := d.checkHalf()
	if err != nil {
		return err
	}
	st := d.store.Stats()
	fmt.Fprintf(f.Out, "\nA store of at most %d keys under %d/h; %d keys have used all of it, %d keys %d; then %d new keys, one request each.\n",
		st.MaxKeys, perHour, established, established, used, flood)
	rows := [][]string{{"", "measured"}}
	rows = append(rows, []string{"ns for the decision on a new key", report.Number(float64(d.spent) / float64(flood))})
	rows = append(rows, []string{"keys with a place", report.Number(float64(st.Keys))})
	rows = append(rows, []string{"decisions on overflow cells", report.Number(float64(st.Overflowed))})
	rows = append(rows, []string{"new keys let through", report.Number(float64(d.admitted))})
	rows = append(rows, []string{"most bytes, by Stats", report.Number(d.mostBytes)})
	rows = append(rows, []string{"most bytes, by the heap", report.Number(d.mostHeap)})
	f.Table(rows)
	f.AtMost(32, d.mostBytes/float64(bound), " B", "flood: bytes for each key of the bound, by Stats")
	f.AtMost(32, d.mostHeap/float64(bound), " B", "flood: bytes for each key of the bound, by the heap")
	f.AtMost(float64(bound), float64(st.Keys), "", "flood: keys with a place")
	f.AtMost(0, float64(d.leaked), "", "flood: exhausted established keys let through")
	f.AtMost(0, float64(wrong), "", "flood: established keys that decide otherwise than before")
	return nil
}

func newDeluge(bound, established int) (*deluge, error) {
	d := &deluge{store: memstore.New(memstore.Options{MaxKeys: bound})}
	var err error
	if d.limiter, err = stint.NewLimiter(d.store, "flood", stint.PerHour(perHour)); err != nil {
		return nil, err
	}
	ctx := context.Background()
	for i := range established {
		exhausted, half := fmt.Sprintf("exhausted:%d", i), fmt.Sprintf("half:%d", i)
		all, err := d.limiter.AllowN(ctx, exhausted, perHour)
		part, err2 := d.limiter.AllowN(ctx, half, used)
		if err := errors.Join(err, err2); err != nil || !all || !part {
			return nil, fmt.Errorf("established keys were not let in: %w", err)
		}
		d.exhausted, d.half = append(d.exhausted, exhausted), append(d.half, half)
	}
	return d, nil
}

// pour sends n new keys, an established key in between now and then, and looks
// at the memory.
func (d *deluge) pour(n int, before float64) error {
	ctx := context.Background()
	keys := make([]string, 0, chunk)
	var buf []byte
	for i := 0; i < n; {
		for keys = keys[:0]; len(keys) < chunk && i < n; i++ {
			buf = appendKey(buf[:0], i)
			keys = append(keys, string(buf))
		}
		begun := time.Now()
		for _, key := range keys {
			ok, err := d.limiter.Allow(ctx, key)
			if err != nil {
				return err
			}
			if ok {
				d.admitted++
			}
		}
		d.spent += time.Since(begun)
		for j := range 10 {
			ok, err := d.limiter.Allow(ctx, d.exhausted[(i/chunk*10+j)%len(d.exhausted)])
			if err != nil {
				return err
			}
			if ok {
				d.leaked++
			}
		}
		if i%(n/10) == 0 {
			d.mostBytes = max(d.mostBytes, float64(d.store.Stats().Bytes))
			d.mostHeap = max(d.mostHeap, heap()-before)
		}
	}
	return nil
}

// checkHalf returns how many of the keys that had used part of their limit do
// not have exactly the rest of it.
func (d *deluge) checkHalf() (wrong int, err error) {
	ctx := context.Background()
	for _, key := range d.half {
		peek, err := d.limiter.Peek(ctx, key, 1)
		if err != nil {
			return 0, err
		}
		rest, err := d.limiter.AllowN(ctx, key, perHour-used)
		if err != nil {
			return 0, err
		}
		more, err := d.limiter.Allow(ctx, key)
		if err != nil {
			return 0, err
		}
		if peek.Remaining != perHour-used || !rest || more {
			wrong++
		}
	}
	return wrong, nil
}
