package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
)

var _ fallback.Charger = (*Store)(nil)

// chargesInFlight is how many calls of one Charge are on their way.
const chargesInFlight = 16

// A charging is a charge, with its limit and key as a part.
type charging struct {
	part
	slot  uint16
	units int64
	index int // its position among the charges
}

// Charge implements [fallback.Charger]. It makes one call for up to 512 keys, in a
// cluster for each slot.
func (s *Store) Charge(ctx context.Context, id string, charges []fallback.Charge) error {
	all := make([]charging, 0, len(charges))
	for i, c := range charges {
		b, ok := c.Bound.(*bound)
		if in, is := c.Bound.(*modeBound); is {
			if in.modes.store == s && in.onServer == nil {
				continue // in mode Share: the server does not know the limits
			}
			b, ok = in.onServer, in.onServer != nil
		}
		if !ok || b.store != s || len(b.limits) != 1 || c.Units < 0 {
			return fmt.Errorf("%w: a charge of %d under %d limits of another store or of several", stint.ErrLayers, c.Units, len(c.Bound.Limits()))
		}
		one := charging{units: c.Units, index: i}
		one.key = c.Key
		one.begin, one.end = s.names.around(c.Key)
		one.limit, one.compiled, one.weight = b.limits[0], b.compiled[0], 1
		one.slot = s.region(one.begin)
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b charging) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot), strings.Compare(a.limit.segment, b.limit.segment))
	})
	var calls sync.WaitGroup
	failed := make([]error, len(charges))
	turns := make(chan struct{}, chargesInFlight)
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].slot == all[0].slot {
			n++
		}
		some := all[:n]
		all = all[n:]
		turns <- struct{}{}
		calls.Go(func() {
			defer func() { <-turns }()
			err := s.charge(ctx, id, some)
			if deniesKey(err) && some[0].limit != some[len(some)-1].limit {
				some = s.permitted(ctx, some, failed)
				err = s.charge(ctx, id, some)
			}
			note(failed, err, some)
		})
	}
	calls.Wait()
	if slices.ContainsFunc(failed, func(err error) bool { return err != nil }) {
		return &fallback.ChargeError{Each: failed}
	}
	return nil
}

// note sets the error of some charges.
func note(failed []error, err error, some []charging) {
	for _, one := range some {
		failed[one.index] = err
	}
}

// permitted returns the charges under limits whose keys this client may use, and notes
// the errors of the others. It asks for one key of each limit.
func (s *Store) permitted(ctx context.Context, all []charging, failed []error) (some []charging) {
	for from, i := 0, 1; i <= len(all); i++ {
		if i < len(all) && all[i].limit == all[from].limit {
			continue
		}
		if a := s.longPath(ctx, []part{all[from].part}, nil, "p", "0"); a.err != nil {
			note(failed, a.err, all[from:i])
		} else {
			some = append(some, all[from:i]...)
		}
		from = i
	}
	return some
}

// charge charges keys of one slot.
func (s *Store) charge(ctx context.Context, id string, all []charging) error {
	if len(all) == 0 {
		return nil
	}
	keys := make([]string, 0, len(all)+1)
	for i := range all {
		keys = append(keys, state(all[i].begin, all[i].end, all[i].limit))
	}
	keys = append(keys, s.names.charged(id, all[0].slot))
	return s.aboutNow(func(now int64, stale func(any) bool) error {
		args := append(make([]string, 0, 3*len(all)), "C", number(int64(fallback.ChargeFor/time.Microsecond)))
		for from, i := 0, 1; i <= len(all); i++ {
			if i < len(all) && all[i].compiled == all[from].compiled && all[i].limit == all[from].limit {
				continue
			}
			args = append(args, number(int64(i-from)), "1")
			args = all[from].append(args, now)
			for _, c := range all[from:i] {
				args = append(args, number(c.units))
			}
			from = i
		}
		return s.eval(ctx, keys, s.clock(args), func(reply any) error { stale(reply); return nil })
	})
}

// Charge implements [fallback.Charger].
func (m *modes) Charge(ctx context.Context, id string, charges []fallback.Charge) error {
	return m.store.Charge(ctx, id, charges)
}
