package meter

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/internal/wording"
)

// A CalendarUnit is the length of a calendar's windows. [MonthFrom] makes months that begin on
// another day than the first.
type CalendarUnit uint8

const (
	NoCalendar CalendarUnit = iota // windows have a fixed period
	Day
	Week // from Monday
	Month
	Quarter // from January, April, July and October
	Year

	calendarUnits = iota
)

// A unit of monthFrom plus d is a month that begins on day d, for d from 2.
const monthFrom CalendarUnit = 64

// MonthFrom returns the unit of months that begin on a given day, from 1 to 31. A month that is too
// short for the day begins on its last day.
func MonthFrom(day int) CalendarUnit {
	if day == 1 {
		return Month
	}
	return monthFrom + CalendarUnit(day)
}

func (u CalendarUnit) known() bool {
	_, month := u.from()
	return month || u < calendarUnits
}

// from returns the day on which the unit's months begin. It returns false where the unit is no
// month.
func (u CalendarUnit) from() (day int, month bool) {
	if u == Month {
		return 1, true
	}
	return int(u - monthFrom), u > monthFrom+1 && u <= monthFrom+31
}

// String returns "", "day", "week", "month", "quarter", "year", or a text like "month from 15".
func (u CalendarUnit) String() string {
	if u < calendarUnits {
		return [calendarUnits]string{"", "day", "week", "month", "quarter", "year"}[u]
	}
	if day, month := u.from(); month {
		return fmt.Sprintf("month from %d", day)
	}
	return fmt.Sprintf("unit(%d)", uint8(u))
}

// nominal returns the approximate length of a window.
func (u CalendarUnit) nominal() time.Duration {
	const day = 24 * time.Hour
	if _, month := u.from(); month {
		return 30 * day
	}
	return [calendarUnits]time.Duration{Day: day, Week: 7 * day, Quarter: 90 * day, Year: 365 * day}[u]
}

// LoadZone returns the zone of that name in the IANA database of the machine, or in the copy that a
// program embeds by importing time/tzdata.
func LoadZone(name string) (*time.Location, error) {
	switch name {
	case "":
		return nil, errors.New("the zone is missing")
	case "Local":
		return nil, errors.New("zone Local differs from machine to machine")
	}
	zone, err := time.LoadLocation(name)
	if err != nil || strings.Contains(name, "//") || strings.Contains(name, "./") {
		return nil, fmt.Errorf("unknown zone %q", wording.Shorten(name))
	}
	return zone, nil
}

// A calendar divides time into the days, weeks, months, quarters or years of a zone. Windows are
// numbered from 1 January of the year 1, a Monday, or of the year 0. A window begins at the first
// instant whose local date lies in the window or later, so each begins once, whatever daylight
// saving does at midnight.
//
// A calendar remembers the window that it returned last, since nearly every decision falls into it.
// It may be used from many goroutines at once.
type calendar struct {
	zone *time.Location
	unit CalendarUnit
	last atomic.Pointer[calendarWindow]
}

type calendarWindow struct {
	index      uint64
	begin, end int64 // nanoseconds since the Unix epoch; [begin, end)
}

// window returns the window that contains now.
func (c *calendar) window(now int64) calendarWindow {
	if w := c.last.Load(); w != nil && w.begin <= now && now < w.end {
		return *w
	}
	w := c.find(now)
	c.last.Store(&w)
	return w
}

func (c *calendar) find(now int64) calendarWindow {
	index := c.number(time.Unix(0, now).In(c.zone))
	end := c.begin(index + 1)
	for end <= now && end < math.MaxInt64 { // daylight saving set the date back over midnight
		index++
		end = c.begin(index + 1)
	}
	return calendarWindow{index, c.begin(index), end}
}

// number returns the number of the window that a local date lies in.
func (c *calendar) number(local time.Time) uint64 {
	y, m, d := local.Date()
	months := y*12 + int(m) - 1
	if from, month := c.unit.from(); month {
		if d < min(from, daysOf(months)) {
			months--
		}
		return uint64(months)
	}
	switch c.unit {
	case Quarter:
		return uint64(months / 3)
	case Year:
		return uint64(y)
	}
	days := uint64(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix()/86400 + daysBefore1970)
	if c.unit == Week {
		return days / 7
	}
	return days
}

// daysOf returns how many days a month has, counted from January of the year 0.
func daysOf(months int) int {
	return time.Date(months/12, time.Month(months%12+2), 0, 0, 0, 0, 0, time.UTC).Day()
}

const daysBefore1970 = 719162

// first returns midnight of a window's first local date, as if in UTC.
func (c *calendar) first(index uint64) time.Time {
	if from, month := c.unit.from(); month {
		return time.Date(int(index/12), time.Month(index%12+1), min(from, daysOf(int(index))), 0, 0, 0, 0, time.UTC)
	}
	switch c.unit {
	case Quarter:
		return time.Date(int(index/4), time.Month(index%4*3+1), 1, 0, 0, 0, 0, time.UTC)
	case Year:
		return time.Date(int(index), time.January, 1, 0, 0, 0, 0, time.UTC)
	case Week:
		index *= 7
	}
	return time.Unix((int64(index)-daysBefore1970)*86400, 0).UTC()
}

// begin returns the first instant whose local date lies in window index or
// later. It walks through the hours in which any zone could have midnight, and
// looks for the moments at which the offset changes (time.Time.ZoneBounds does
// not serve: in some years its end is not after the time asked for).
func (c *calendar) begin(index uint64) int64 {
	midnight := c.first(index).Unix()
	at, last := midnight-26*3600, midnight+26*3600
	offset := c.offset(at)
	for at < last {
		until := at + 3600
		next := c.offset(until)
		if next != offset {
			until = at + int64(sort.Search(3600, func(i int) bool { return c.offset(at+int64(i)) != offset }))
			next = c.offset(until)
		}
		if begin := midnight - offset; begin < until {
			return unixNano(max(begin, at))
		}
		at, offset = until, next
	}
	return unixNano(midnight - offset)
}

// offset returns how far local time is ahead of UTC, in seconds.
func (c *calendar) offset(unix int64) int64 {
	_, offset := time.Unix(unix, 0).In(c.zone).Zone()
	return int64(offset)
}

// unixNano returns seconds as nanoseconds, held at the ends of int64.
func unixNano(s int64) int64 {
	const most = math.MaxInt64 / int64(time.Second)
	switch {
	case s >= most:
		return math.MaxInt64
	case s <= -most:
		return math.MinInt64
	}
	return s * int64(time.Second)
}
