package model_test

import (
	"testing"
	"time"

	"github.com/stint-dev/stint/test/proof/model"
)

// day is one request a local day.
func day(zone string) model.Spec {
	return model.Spec{Kind: model.Fixed, Count: 1, Calendar: "day", Zone: zone}
}

func month(zone string) model.Spec {
	s := day(zone)
	s.Calendar = "month"
	return s
}

func of(unit, zone string) model.Spec {
	s := day(zone)
	s.Calendar = unit
	return s
}

func instant(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// A take at an instant is followed by an end of its window at another.
func TestCalendarWindows(t *testing.T) {
	for _, c := range []struct {
		spec            model.Spec
		what            string
		at, begins, end string
	}{
		{day("Europe/Paris"), "an hour short", "2024-03-31T12:00:00+02:00", "2024-03-31T00:00:00+01:00", "2024-04-01T00:00:00+02:00"},
		{day("Europe/Paris"), "an hour long", "2024-10-27T12:00:00+01:00", "2024-10-27T00:00:00+02:00", "2024-10-28T00:00:00+01:00"},
		{month("Europe/Paris"), "both offsets", "2024-03-05T00:00:00+01:00", "2024-03-01T00:00:00+01:00", "2024-04-01T00:00:00+02:00"},
		{day("Europe/Paris"), "where ZoneBounds fails", "2040-12-31T12:00:00+01:00", "2040-12-31T00:00:00+01:00", "2041-01-01T00:00:00+01:00"},
		{month("Australia/Sydney"), "where ZoneBounds fails", "2040-12-31T12:00:00+11:00", "2040-12-01T00:00:00+11:00", "2041-01-01T00:00:00+11:00"},
		{day("America/Sao_Paulo"), "midnight skipped", "2017-10-15T01:00:00-02:00", "2017-10-15T01:00:00-02:00", "2017-10-16T00:00:00-02:00"},
		{day("America/Sao_Paulo"), "before it", "2017-10-14T23:59:59-03:00", "2017-10-14T00:00:00-03:00", "2017-10-15T01:00:00-02:00"},
		{day("America/Sao_Paulo"), "23 o'clock twice", "2018-02-17T23:30:00-03:00", "2018-02-17T00:00:00-02:00", "2018-02-18T00:00:00-03:00"},
		{day("Pacific/Apia"), "the 30th skipped", "2011-12-29T23:59:59-10:00", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{day("Pacific/Apia"), "after it", "2011-12-31T00:00:00+14:00", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00"},
		{month("Pacific/Apia"), "a month of 30 days", "2011-12-15T00:00:00-10:00", "2011-12-01T00:00:00-10:00", "2012-01-01T00:00:00+14:00"},
		{day("America/St_Johns"), "first minute", "2006-10-29T00:00:30-02:30", "2006-10-29T00:00:00-02:30", "2006-10-30T00:00:00-03:30"},
		{day("America/St_Johns"), "the date is back", "2006-10-28T23:30:00-03:30", "2006-10-29T00:00:00-02:30", "2006-10-30T00:00:00-03:30"},
		{day("America/St_Johns"), "midnight again", "2006-10-29T00:00:30-03:30", "2006-10-29T00:00:00-02:30", "2006-10-30T00:00:00-03:30"},
		{of("week", "Europe/Paris"), "an hour short", "2026-03-29T12:00:00+02:00", "2026-03-23T00:00:00+01:00", "2026-03-30T00:00:00+02:00"},
		{of("week", "UTC"), "epoch", "1970-01-01T00:00:00Z", "1969-12-29T00:00:00Z", "1970-01-05T00:00:00Z"},
		{of("quarter", "America/New_York"), "second", "2026-06-30T23:59:59-04:00", "2026-04-01T00:00:00-04:00", "2026-07-01T00:00:00-04:00"},
		{of("year", "Asia/Tokyo"), "leap", "2024-12-31T23:59:59+09:00", "2024-01-01T00:00:00+09:00", "2025-01-01T00:00:00+09:00"},
		{of("month from 15", "Europe/Paris"), "before it", "2026-04-14T23:59:59+02:00", "2026-03-15T00:00:00+01:00", "2026-04-15T00:00:00+02:00"},
		{of("month from 31", "UTC"), "the last of February", "2026-02-28T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"},
		{of("month from 31", "UTC"), "a leap year", "2024-02-28T23:59:59Z", "2024-01-31T00:00:00Z", "2024-02-29T00:00:00Z"},
		{of("month from 30", "UTC"), "in April", "2026-04-30T00:00:00Z", "2026-04-30T00:00:00Z", "2026-05-30T00:00:00Z"},
		{month("UTC"), "leap", "2024-02-29T23:59:59Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"},
		{day("UTC"), "epoch", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z"},
		{day("America/New_York"), "epoch, local 1969", "1970-01-01T00:00:00Z", "1969-12-31T05:00:00Z", "1970-01-01T05:00:00Z"},
	} {
		name := c.spec.Zone + ", " + c.what
		at := instant(t, c.at)
		begins, end, _ := model.Window(c.spec, at.UnixNano())
		if want := instant(t, c.begins); begins.Int64() != want.UnixNano() {
			t.Errorf("%s: begins %v, want %v", name, time.Unix(0, begins.Int64()).UTC(), want.UTC())
		}
		if want := instant(t, c.end); end.Int64() != want.UnixNano() {
			t.Errorf("%s: ends %v, want %v", name, time.Unix(0, end.Int64()).UTC(), want.UTC())
		}
		m := model.New()
		m.Take(at.UnixNano(), on(c.spec), 1)
		wait := instant(t, c.end).Sub(at).Nanoseconds()
		expect(t, name, m.Take(at.UnixNano(), on(c.spec), 1), false, 0, wait, wait)
	}
}

// Walking through nine months of a zone, 47 minutes at a time: the index
// never falls, and it next grows at the end that the answer gave.
func TestCalendarWalk(t *testing.T) {
	for _, zone := range []string{"Europe/Paris", "America/Sao_Paulo", "Pacific/Apia", "America/St_Johns", "Africa/Cairo", "Australia/Lord_Howe"} {
		for _, spec := range []model.Spec{day(zone), month(zone)} {
			at := time.Date(2006, 8, 1, 0, 0, 0, 0, time.UTC)
			_, end, index := model.Window(spec, at.UnixNano())
			for ; at.Before(time.Date(2007, 5, 1, 0, 0, 0, 0, time.UTC)); at = at.Add(47 * time.Minute) {
				if at.UnixNano() < end.Int64() {
					m := model.New() // denied up to the end
					m.Take(at.UnixNano(), on(spec), 1)
					if got := m.Peek(at.UnixNano(), on(spec), 1).ResetAfter.Int64(); got != end.Int64()-at.UnixNano() {
						t.Fatalf("%s at %v: reset after %d", zone, at, got)
					}
					continue
				}
				begins, next, i := model.Window(spec, at.UnixNano())
				if i.Cmp(index) <= 0 || begins.Cmp(end) != 0 || next.Cmp(end) <= 0 {
					t.Fatalf("%s at %v: window %v [%v, %v) after %v, which ended at %v", zone, at, i, begins, next, index, end)
				}
				end, index = next, i
			}
		}
	}
}
