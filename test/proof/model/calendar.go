package model

import (
	"fmt"
	"math/big"
	"sync"
	"time"
	_ "time/tzdata" // so that every machine knows the same zones
)

// calendar are the days or months of a zone. A window begins at the first
// instant whose local date is that day (or in that month) or later, so it
// begins once, whatever the zone does at midnight.
type calendar struct {
	zone  *time.Location
	month bool
}

var zones sync.Map // of *time.Location by name

// calendarOf returns the calendar of a zone, by "day" or by "month".
func calendarOf(unit, zone string) calendar {
	if unit != "day" && unit != "month" {
		panic(fmt.Sprintf("model: no calendar %q", unit))
	}
	if l, ok := zones.Load(zone); ok {
		return calendar{l.(*time.Location), unit == "month"}
	}
	l, err := time.LoadLocation(zone)
	if err != nil {
		panic("model: " + err.Error())
	}
	zones.Store(zone, l)
	return calendar{l, unit == "month"}
}

// index is that of the greatest local date of any instant up to t.
func (c calendar) index(t *big.Int) *big.Int {
	return big.NewInt(c.greatest(c.instant(t)))
}

// end is the first instant with a greater index than that of t.
func (c calendar) end(t *big.Int) *big.Int {
	at := c.instant(t)
	midnight := c.begins(c.greatest(at) + 1)
	for period := at; ; {
		// Within one period of the zone local time runs straight on.
		start, end := period.ZoneBounds()
		if !end.IsZero() && !end.After(period) {
			// Go has this end too early on the last day of leap years from 2038
			// on. No zone changes its offset there.
			end = period.Add(time.Hour)
		}
		_, offset := period.Zone()
		first := time.Unix(midnight-int64(offset), 0)
		if !start.IsZero() && first.Before(start) {
			first = start
		}
		if end.IsZero() || first.Before(end) {
			return nanoseconds(first)
		}
		period = end
	}
}

// greatest walks back over the changes of the zone in the three days before at:
// no two offsets lie further apart than that, so what was before them had
// earlier dates.
func (c calendar) greatest(at time.Time) int64 {
	found := c.number(at)
	horizon := at.Add(-72 * time.Hour)
	for {
		start, _ := at.ZoneBounds()
		if start.IsZero() || start.Before(horizon) {
			return found
		}
		at = start.Add(-time.Nanosecond) // the last instant before the change
		found = max(found, c.number(at))
	}
}

// number counts the local days, or months, from the first of January 1970.
func (c calendar) number(at time.Time) int64 {
	year, month, day := at.Date()
	if c.month {
		return int64(year-1970)*12 + int64(month-time.January)
	}
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() / (24 * 60 * 60)
}

// begins is the local midnight at which a number begins, in seconds as if the
// zone were UTC.
func (c calendar) begins(number int64) int64 {
	if c.month {
		return time.Date(1970, time.January+time.Month(number), 1, 0, 0, 0, 0, time.UTC).Unix()
	}
	return number * 24 * 60 * 60
}

// instant is t, ns since the epoch, in the zone.
func (c calendar) instant(t *big.Int) time.Time {
	seconds, rest := new(big.Int).DivMod(t, big.NewInt(1e9), new(big.Int))
	return time.Unix(seconds.Int64(), rest.Int64()).In(c.zone)
}

// nanoseconds is an instant in ns since the epoch.
func nanoseconds(at time.Time) *big.Int {
	return add(mul(big.NewInt(at.Unix()), big.NewInt(1e9)), big.NewInt(int64(at.Nanosecond())))
}

// Window returns the bounds [begin, end) of the window of a fixed_window limit
// that holds t, in nanoseconds since the epoch, and its index, which grows with
// time. Begin is found by search from the windows' indexes.
func Window(spec Spec, t int64) (begin, end, index *big.Int) {
	w := windowsOf(spec)
	now := big.NewInt(t)
	index = w.index(now)
	before := sub(now, big.NewInt(1))
	for step := big.NewInt(1); w.index(before).Cmp(index) == 0; step = add(step, step) {
		before = sub(before, step)
	}
	begin = first(before, now, func(at *big.Int) bool { return w.index(at).Cmp(index) == 0 })
	return begin, w.end(now), index
}
