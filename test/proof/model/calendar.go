package model

import (
	"fmt"
	"math/big"
	"sync"
	"time"
	_ "time/tzdata" // so that every machine knows the same zones
)

// calendar are the windows of a zone: days, weeks from Monday, quarters, years, or months
// from a day on, which begin on their last day where they have no such day. A window
// begins at the first instant whose local date is that of its first day or later, so it
// begins once, whatever the zone does at midnight.
type calendar struct {
	zone *time.Location
	unit string
	from int // of months: the day that they begin on
}

var zones sync.Map // of *time.Location by name

// calendarOf returns the calendar of a zone, by "day", "week", "month", "quarter", "year" or,
// such as, "month from 15".
func calendarOf(unit, zone string) calendar {
	c := calendar{unit: unit, from: 1}
	if n, _ := fmt.Sscanf(unit, "month from %d", &c.from); n == 1 {
		c.unit = "month"
	}
	switch c.unit {
	case "day", "week", "month", "quarter", "year":
	default:
		panic(fmt.Sprintf("model: no calendar %q", unit))
	}
	if l, ok := zones.Load(zone); ok {
		c.zone = l.(*time.Location)
		return c
	}
	l, err := time.LoadLocation(zone)
	if err != nil {
		panic("model: " + err.Error())
	}
	zones.Store(zone, l)
	c.zone = l
	return c
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

// number is that of the last window that has begun by a local date.
func (c calendar) number(at time.Time) int64 {
	year, month, day := at.Date()
	date := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()
	found := date / (24 * 60 * 60) // as if by days: too great, but for days and before 1970
	if c.unit != "day" {
		longest := map[string]int64{"week": 7, "month": 31, "quarter": 92, "year": 366}[c.unit]
		found = found/longest - 1 // too small
	}
	for c.begins(found+1) <= date {
		found++
	}
	for c.begins(found) > date {
		found--
	}
	return found
}

// begins is the local midnight at which a window begins, counted from the one of January
// 1970, in seconds as if the zone were UTC.
func (c calendar) begins(number int64) int64 {
	first := func(months int64) time.Time {
		return time.Date(1970, time.January+time.Month(months), 1, 0, 0, 0, 0, time.UTC)
	}
	switch c.unit {
	case "week": // the first of January 1970 was a Thursday
		return (number*7 - 3) * 24 * 60 * 60
	case "month":
		begin := first(number)
		for range c.from - 1 {
			if next := begin.AddDate(0, 0, 1); next.Month() == begin.Month() {
				begin = next
			}
		}
		return begin.Unix()
	case "quarter":
		return first(3 * number).Unix()
	case "year":
		return first(12 * number).Unix()
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
