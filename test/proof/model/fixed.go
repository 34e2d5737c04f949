package model

import "math/big"

// windows cuts time into windows that never overlap. An index names a window;
// indexes grow with time.
type windows interface {
	index(t *big.Int) *big.Int
	end(t *big.Int) *big.Int // the instant at which the window that holds t ends
}

// windowsOf returns the windows of a fixed_window limit.
func windowsOf(spec Spec) windows {
	if spec.Calendar != "" {
		return calendarOf(spec.Calendar, spec.Zone)
	}
	return aligned{big.NewInt(spec.Period)}
}

// aligned are the windows [k·W, (k+1)·W) since the epoch.
type aligned struct{ period *big.Int }

func (a aligned) index(t *big.Int) *big.Int { return floorDiv(t, a.period) }
func (a aligned) end(t *big.Int) *big.Int {
	return mul(add(a.index(t), big.NewInt(1)), a.period)
}

// fixed is "fixed_window": a count for the window that holds t.
type fixed struct {
	dated
	windows windows
	index   *big.Int // the window that used belongs to
	used    *big.Int // units, at most 2^63 − 1
}

// usedAt is the count of the window that holds t.
func (f *fixed) usedAt(t *big.Int) *big.Int {
	if f.windows.index(t).Cmp(f.index) != 0 {
		return new(big.Int)
	}
	return f.used
}

// admits: used + c ≤ L.
func (f *fixed) admits(t *big.Int, c int64) bool {
	return add(f.usedAt(t), big.NewInt(c)).Cmp(big.NewInt(f.spec.Count)) <= 0
}

func (f *fixed) charge(t *big.Int, c int64, _ charging) receipt {
	f.write(t, least(add(f.usedAt(t), big.NewInt(c)), maxInt64))
	return receipt{at: t}
}

// write sets the count of the window that holds t.
func (f *fixed) write(t, used *big.Int) {
	f.used, f.index = used, f.windows.index(t)
}

func (f *fixed) resetAfter(t *big.Int) *big.Int {
	if f.usedAt(t).Sign() == 0 {
		return new(big.Int)
	}
	return sub(f.windows.end(t), t)
}

func (f *fixed) giveBack(t *big.Int, r receipt, g int64) {
	if f.windows.index(t).Cmp(f.windows.index(r.at)) == 0 {
		f.refund(t, g)
	}
}

func (f *fixed) refund(t *big.Int, c int64) {
	f.write(t, lessUpTo(f.usedAt(t), big.NewInt(c)))
}
