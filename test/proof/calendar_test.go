package proof_test

import (
	"archive/zip"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
)

// TestCalendarJudge holds the windows of every unit, in every zone of Go's database, from
// 2000 to 2100, to a calendar that knows local dates alone: it goes from day to day for the
// date on which a window begins, and from minute to minute for the moment.
func TestCalendarJudge(t *testing.T) {
	points := 3_000
	if !testing.Short() {
		points = 100_000
	}
	zones := zoneNames(t)
	units := []meter.CalendarUnit{meter.Day, meter.Week, meter.Month, meter.Quarter, meter.Year}
	for day := 2; day <= 31; day++ {
		units = append(units, meter.MonthFrom(day))
	}
	from, until := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano(), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	random := rand.New(rand.NewPCG(38, 5))
	for i := range points {
		name, unit := zones[i%len(zones)], units[random.IntN(len(units))]
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		m, err := stint.PerIn(3, unit, name).Meter()
		if err != nil {
			t.Fatal(err)
		}
		at := from + random.Int64N(until-from)
		begin, end := judge(time.Unix(0, at).In(zone), unit)
		if i%3 == 0 { // at the edges themselves
			at = []int64{begin, end - 1}[random.IntN(2)]
			begin, end = judge(time.Unix(0, at).In(zone), unit)
		}
		if got := at + windowLeft(m, at); got != end {
			t.Errorf("%v in %s at %v: ends %v, want %v", unit, name, time.Unix(0, at).In(zone), time.Unix(0, got).In(zone), time.Unix(0, end).In(zone))
		}
		if got := begin - 1 + windowLeft(m, begin-1); got != begin {
			t.Errorf("%v in %s at %v: begins %v, want %v", unit, name, time.Unix(0, at).In(zone), time.Unix(0, got).In(zone), time.Unix(0, begin).In(zone))
		}
	}
	t.Logf("%d points in %d zones", points, len(zones))
}

// windowLeft is how long the window of a moment still lasts.
func windowLeft(m *meter.Meter, at int64) int64 {
	a, _ := m.Take(make([]uint64, m.Words()), at, 1)
	return int64(a.ResetAfter)
}

// A date is a local date, by itself.
type date struct{ year, month, day int }

func dateOf(at time.Time) date {
	y, m, d := at.Date()
	return date{y, int(m), d}
}

func (d date) before(e date) bool {
	return d.year < e.year || d.year == e.year && (d.month < e.month || d.month == e.month && d.day < e.day)
}

// plus is so many days later.
func (d date) plus(days int) date {
	return dateOf(time.Date(d.year, time.Month(d.month), d.day+days, 12, 0, 0, 0, time.UTC))
}

// begins reports whether windows of a unit begin on a date.
func (d date) begins(unit meter.CalendarUnit) bool {
	switch unit {
	case meter.Day:
		return true
	case meter.Week:
		return time.Date(d.year, time.Month(d.month), d.day, 12, 0, 0, 0, time.UTC).Weekday() == time.Monday
	case meter.Month:
		return d.day == 1
	case meter.Quarter:
		return d.day == 1 && d.month%3 == 1
	case meter.Year:
		return d.day == 1 && d.month == 1
	}
	for from := 2; from <= 31; from++ {
		if unit == meter.MonthFrom(from) {
			return d.day == from || d.day < from && d.plus(1).day == 1
		}
	}
	panic("no such unit")
}

// judge returns when the window that holds a moment began, and when it ends.
func judge(at time.Time, unit meter.CalendarUnit) (begin, end int64) {
	first := dateOf(at)
	for !first.begins(unit) {
		first = first.plus(-1)
	}
	for begin = reached(first, at.Location()); ; begin = end { // once more where the date went back
		next := first.plus(1)
		for !next.begins(unit) {
			next = next.plus(1)
		}
		if end = reached(next, at.Location()); at.UnixNano() < end {
			return begin, end
		}
		first = next
	}
}

// reached is the first minute of a date, or of a later one, in a zone.
func reached(d date, zone *time.Location) int64 {
	at := time.Date(d.year, time.Month(d.month), d.day, 0, 0, 0, 0, time.UTC).Add(-27 * time.Hour)
	for dateOf(at.In(zone)).before(d) {
		at = at.Add(time.Minute)
	}
	return at.UnixNano()
}

// zoneNames returns the names of all zones that Go brings along.
func zoneNames(t *testing.T) (names []string) {
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	for _, f := range archive.File {
		if !strings.HasSuffix(f.Name, "/") {
			names = append(names, f.Name)
		}
	}
	if len(names) < 400 {
		t.Fatalf("%d zones", len(names))
	}
	return names
}
