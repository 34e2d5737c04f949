package stint

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stint-dev/stint/internal/wording"
	"github.com/stint-dev/stint/meter"
)

// A ParseError says what is wrong in a limit's text, where, and what would be
// right.
type ParseError struct {
	Text   string // the whole text
	Offset int    // where the error is, in bytes from the start
	Reason string // what is wrong
	Hint   string // what would be right; may be empty
}

// Error returns one line: the text, the place, the reason and the hint.
func (e *ParseError) Error() string {
	s := fmt.Sprintf("stint: limit %q, column %d: %s", wording.Shorten(e.Text), e.column(), e.Reason)
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// column returns the place of the error in characters, from 1.
func (e *ParseError) column() int {
	return utf8.RuneCountInString(e.Text[:min(max(e.Offset, 0), len(e.Text))]) + 1
}

// Parse reads a limit as people write it:
//
//	100 per minute
//	100/min
//	1k req/s
//	10/s burst 20
//	100_000/m burst 50_000 debt 1_000_000
//	500/h sliding_log count_denied
//	5 per minute ban 1h
//	every 2s
//	1_000_000 per month in UTC
//	5_000 per month from 15 in Europe/Paris
//	100/h fixed_window from first
//	20 in flight
//
// The algorithm is gcra unless named, and fixed_window with "in". Options come in
// any order, each at most once. The error is a [*ParseError].
func Parse(text string) (Limit, error) {
	p := &parser{text: text}
	p.split()
	l, err := p.limit()
	if err != nil {
		return Limit{}, err
	}
	if err := l.check(); err != nil {
		return Limit{}, p.fail(p.period0, "", "%v", err)
	}
	return l, nil
}

// word is a word of the text, and its offset.
type word struct {
	s  string
	at int
}

type parser struct {
	text  string
	words []word
	end   int             // of the word last taken
	seen  map[string]word // options met so far

	period0, period1 int  // where the period begins and ends
	noBurst          bool // burst 0
}

func (p *parser) split() {
	start := -1
	for i := 0; i <= len(p.text); i++ {
		blank := i == len(p.text) || p.text[i] == ' ' || p.text[i] == '\t'
		switch {
		case blank && start >= 0:
			p.words = append(p.words, word{p.text[start:i], start})
			start = -1
		case !blank && start < 0:
			start = i
		}
	}
}

// next takes the next word. At the end of the text, it returns an empty word with the offset
// of the end.
func (p *parser) next() word {
	if len(p.words) == 0 {
		return word{at: len(p.text)}
	}
	w := p.words[0]
	p.words = p.words[1:]
	p.end = w.at + len(w.s)
	return w
}

func (p *parser) fail(at int, hint, reason string, args ...any) error {
	return &ParseError{Text: p.text, Offset: at, Reason: fmt.Sprintf(reason, args...), Hint: hint}
}

const shapes = `write "100 per minute", "10/s burst 20", "every 2s" or "20 in flight"`

func (p *parser) limit() (Limit, error) {
	first := p.next()
	switch {
	case first.s == "":
		return Limit{}, p.fail(0, shapes, "nothing there")
	case first.s == "every":
		return p.every()
	}
	if len(p.words) > 0 && first.s[0] > '9' && wording.Distance(strings.ToLower(wording.Shorten(first.s)), "every") < 3 {
		return Limit{}, p.fail(first.at, `did you mean "every"?`, "unknown word %q", first.s)
	}
	count, _, slash := strings.Cut(first.s, "/")
	n, err := p.number(word{count, first.at}, "count", 1)
	if err != nil {
		return Limit{}, p.hinted(err, word{count, first.at})
	}
	if !slash {
		first, count = p.next(), ""
		if noun, _, _ := strings.Cut(first.s, "/"); slices.Contains(nouns, noun) {
			if count = noun; noun == first.s {
				first, count = p.next(), ""
			}
		}
	}
	if !slash && first.s == "in" && len(p.words) > 0 && strings.EqualFold(p.words[0].s, "flight") {
		return p.inFlight(n)
	}
	w, err := p.per(first, len(count))
	if err != nil {
		return Limit{}, err
	}
	l := Limit{spec: meter.Spec{Count: n}}
	if err := p.period(&l, w); err != nil {
		return Limit{}, err
	}
	return l, p.options(&l, w)
}

// inFlight reads what follows "N in" of a limit in flight.
func (p *parser) inFlight(n int64) (Limit, error) {
	p.next()
	if more := p.next(); more.s != "" {
		return Limit{}, p.fail(more.at, `write another limit beside it for what may pass in a period`, `"in flight" takes no options, and here is %q`, wording.Shorten(more.s))
	}
	return InFlight(n), nil
}

// nouns may follow the count, and change nothing.
var nouns = []string{"req", "reqs", "request", "requests"}

// per skips "per" or "/", which is the word w, or the part of it at slash, and returns the
// word that begins the period.
func (p *parser) per(w word, slash int) (word, error) {
	switch {
	case w.s == "":
		return w, p.fail(w.at, shapes, "the period is missing")
	case w.s == "per" || w.s == "/":
		return p.next(), nil
	case w.s[slash] == '/':
		return word{w.s[slash+1:], w.at + slash + 1}, nil
	}
	hint := shapes
	if unit := rates[strings.ToLower(w.s)]; unit != "" {
		hint = fmt.Sprintf("write %q", wording.Shorten(strings.TrimSpace(p.text[:w.at]))+unit)
	} else if w.s == "in" && len(p.words) > 0 && wording.Distance(strings.ToLower(wording.Shorten(p.words[0].s)), "flight") < 3 {
		hint = `did you mean "in flight"?`
	}
	return w, p.fail(w.at, hint, `want "per" or "/" after the count, not %q`, wording.Shorten(w.s))
}

func (p *parser) every() (Limit, error) {
	l := Limit{spec: meter.Spec{Count: 1}}
	w := p.next()
	if err := p.period(&l, w); err != nil {
		return Limit{}, err
	}
	if l.spec.Calendar != meter.NoCalendar {
		return Limit{}, p.fail(w.at, fmt.Sprintf("write \"1 per %s in UTC\"", l.spec.Calendar), `"every" takes a duration, not a calendar %s`, l.spec.Calendar)
	}
	period1 := p.end
	if more := p.next(); more.s != "" {
		hint := fmt.Sprintf("write %q", "1/"+wording.Shorten(p.text[w.at:period1])+" "+wording.Shorten(p.text[more.at:]))
		return Limit{}, p.fail(more.at, hint, `"every" takes no options, and here is %q`, wording.Shorten(more.s))
	}
	return l, nil
}

// number reads a whole number of at least least. "_" between digits is allowed,
// "," between groups of three, and k or M at the end for thousands and millions.
func (p *parser) number(w word, what string, least int64) (int64, error) {
	hint := fmt.Sprintf("write a whole number from %d to 9_223_372_036_854_775_807", least)
	if w.s == "" {
		return 0, p.fail(w.at, hint, "%s is missing", what)
	}
	digits, scale := w.s, int64(1)
	switch last := len(w.s) - 1; {
	case last == 0:
	case w.s[last] == 'k' || w.s[last] == 'K':
		digits, scale = w.s[:last], 1_000
	case w.s[last] == 'M':
		digits, scale = w.s[:last], 1_000_000
	}
	var n int64
	for i := 0; i < len(digits); i++ {
		c := digits[i]
		if c == '_' && i > 0 && i+1 < len(digits) && digits[i-1] != '_' || c == ',' && thousands(digits, i) {
			continue
		}
		if c < '0' || c > '9' {
			return 0, p.fail(w.at+i, hint, "%s %q is not a whole number", what, wording.Shorten(w.s))
		}
		d := int64(c - '0')
		if n > (math.MaxInt64-d)/10 {
			return 0, p.fail(w.at, hint, "%s %q is too large", what, wording.Shorten(w.s))
		}
		n = n*10 + d
	}
	if n > math.MaxInt64/scale {
		return 0, p.fail(w.at, hint, "%s %q is too large", what, wording.Shorten(w.s))
	}
	if n *= scale; n < least {
		return 0, p.fail(w.at, hint, "%s is %d", what, n)
	}
	return n, nil
}

// thousands reports whether the comma at i stands between groups of three digits.
func thousands(digits string, i int) bool {
	first := strings.IndexByte(digits, ',')
	behind, _, _ := strings.Cut(digits[i+1:], ",")
	return first > 0 && first <= 3 && len(behind) == 3
}

var units = map[string]time.Duration{
	"s": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
	"w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour, "weeks": 7 * 24 * time.Hour,
}

// abbreviations are short names of units.
var abbreviations = map[string]string{
	"sec": "second", "secs": "seconds", "min": "minute", "mins": "minutes", "hr": "hour", "hrs": "hours",
}

const periods = `write s, m, h, d, w, a number of them such as "2 hours", or a duration such as 90s or 1h30m`

// calendarUnits are units whose length depends on the calendar.
var calendarUnits = map[string]meter.CalendarUnit{"month": meter.Month, "quarter": meter.Quarter, "year": meter.Year}

// period reads the period that begins with w into l; "day" and "week" become those of the
// calendar later, if "in" follows.
func (p *parser) period(l *Limit, w word) error {
	p.period0 = w.at
	if w.s == "" {
		return p.fail(w.at, periods, "the period is missing")
	}
	if unit, ok := calendarUnits[strings.ToLower(w.s)]; ok {
		l.spec.Calendar = unit
		return nil
	}
	digits := len(w.s) - len(strings.TrimLeft(w.s, "0123456789_"))
	name := word{w.s[digits:], w.at + digits}
	if digits > 0 && name.s == "" {
		if name = p.next(); name.s == "" || isOption(name.s) {
			return p.fail(w.at, periods, "the period %q has no unit", wording.Shorten(w.s))
		}
	}
	lower := strings.ToLower(name.s)
	if full, short := abbreviations[lower]; short {
		lower = full
	}
	_, counted := calendarUnits[strings.TrimSuffix(lower, "s")]
	switch unit, known := units[lower]; {
	case name.s == "M":
		return p.fail(name.at, `write "m" for a minute, "per month in UTC" for a month`, `"M" may be a minute or a month`)
	case known && digits > 0:
		if strings.Trim(w.s[:digits], "0") == "" {
			return p.fail(w.at, periods, "the period is zero")
		}
		n, err := p.number(word{w.s[:digits], w.at}, "the period", 1)
		if err != nil {
			return err
		}
		if n > math.MaxInt64/int64(unit) {
			return p.fail(w.at, "the longest is 292 years", "the period is too long")
		}
		l.spec.Period = time.Duration(n) * unit
	case known:
		l.spec.Period = unit
	case counted:
		one := strings.TrimSuffix(lower, "s")
		return p.fail(name.at, fmt.Sprintf(`write "per %s in UTC", or a number of days`, one), "%ss cannot be counted", one)
	case name.at == w.at+digits && (digits > 0 || w.s[0] == '.'):
		return p.duration(l, w)
	case isDurationUnit(name.s):
		return p.fail(name.at, fmt.Sprintf("write \"1%s\"", name.s), "%q needs a number right before it", name.s)
	case strings.HasSuffix(name.s, ","):
		return p.fail(name.at+len(name.s)-1, "several limits are a list, such as [10/s, 100/h]; else drop it", "a comma after the period")
	default:
		return p.fail(name.at, p.suggest(name.s, maps.Keys(units), periods), "unknown period %q", wording.Shorten(name.s))
	}
	return nil
}

// isOption reports whether a word begins an option.
func isOption(word string) bool {
	_, algorithm := meter.ParseAlgorithm(word)
	return algorithm || slices.Contains(optionNames, word)
}

var optionNames = []string{"burst", "debt", "parts", "relaxed", "count_denied", "ban", "from", "in"}

// duration reads w as a Go duration of whole nanoseconds.
func (p *parser) duration(l *Limit, w word) error {
	ns, err := parseDuration(w.s)
	if err != nil {
		return p.fail(w.at, periods, "period %q: %v", wording.Shorten(w.s), err)
	}
	if ns < 1 {
		return p.fail(w.at, periods, "the period is zero")
	}
	l.spec.Period = time.Duration(ns)
	return nil
}

func (p *parser) options(l *Limit, period word) error {
	p.period1 = p.end
	p.seen = make(map[string]word)
	for w := p.next(); w.s != ""; w = p.next() {
		if err := p.option(l, w, period); err != nil {
			return err
		}
	}
	if l.spec.Calendar != meter.NoCalendar && l.spec.Zone == "" {
		return p.fail(period.at, fmt.Sprintf(`write "per %s in UTC", or a number of days`, l.spec.Calendar), "a %s needs a zone", strings.ToLower(period.s))
	}
	if l.spec.FromFirst && l.spec.Calendar != meter.NoCalendar {
		return p.fail(p.seen["from first"].at, "leave one of them out", `"in" has the windows of a calendar, "from first" a window of each key`)
	}
	if algorithm, ok := p.seen["algorithm"]; ok && l.spec.Calendar != meter.NoCalendar && !l.spec.Algorithm.Takes(meter.ByCalendar) {
		return p.fail(algorithm.at, "leave the algorithm out", `"in" makes a fixed_window, not %v`, l.spec.Algorithm)
	}
	if l.spec.Calendar != meter.NoCalendar {
		l.spec.Algorithm = meter.FixedWindow
	}
	return p.fitting(l)
}

// fitting refuses options that the algorithm does not have, even if their value is the
// default.
func (p *parser) fitting(l *Limit) error {
	for _, o := range meter.Options() {
		if w, given := p.seen[o.String()]; given && !l.spec.Algorithm.Takes(o) {
			return p.fail(w.at, o.Takers(), "%v has no %v", l.spec.Algorithm, o)
		}
	}
	if p.noBurst && !l.spec.Algorithm.Queues() {
		return p.fail(p.seen["burst"].at, "at least 1; leaky_queue alone takes 0", "burst is 0")
	}
	return nil
}

func (p *parser) option(l *Limit, w, period word) error {
	name := w.s
	algorithm, isAlgorithm := meter.ParseAlgorithm(name)
	if isAlgorithm {
		name = "algorithm"
	}
	if _, again := p.seen[name]; again {
		if isAlgorithm {
			return p.fail(w.at, "a limit has one", "a second algorithm, %q", w.s)
		}
		return p.fail(w.at, "give it once", "a second %q", name)
	}
	p.seen[name] = w
	switch name {
	case "algorithm":
		l.spec.Algorithm = algorithm
	case "relaxed":
		l.spec.Relaxed = true
	case "count_denied":
		l.spec.CountDenied = true
	case "burst":
		n, err := p.number(p.next(), "burst", 0)
		if err != nil {
			return err
		}
		p.noBurst = n == 0
		*l = l.WithBurst(n)
	case "debt":
		n, err := p.number(p.next(), "debt", 1)
		if err != nil {
			return err
		}
		*l = l.WithDebt(n)
	case "parts":
		n, err := p.number(p.next(), "parts", 1)
		if err != nil {
			return err
		}
		if n > meter.MaxSubWindows {
			return p.fail(w.at, fmt.Sprintf("from 1 to %d", meter.MaxSubWindows), "parts is %d", n)
		}
		*l = l.WithParts(n)
	case "ban":
		return p.ban(l, p.next())
	case "from":
		return p.from(l, p.next(), w)
	case "in":
		return p.zone(l, p.next(), period)
	default:
		return p.fail(w.at, p.optionHint(name), "unknown option %q", wording.Shorten(name))
	}
	return nil
}

// ban reads the length of a ban.
func (p *parser) ban(l *Limit, w word) error {
	if w.s == "" || isOption(w.s) {
		return p.fail(w.at, periods, "the ban has no length")
	}
	of := parser{text: p.text, words: p.words, end: p.end}
	var length Limit
	if err := of.period(&length, w); err != nil {
		return err
	}
	if length.spec.Calendar != meter.NoCalendar {
		return p.fail(w.at, periods, "the length of a ban does not go by the calendar")
	}
	if length.spec.Period > meter.MaxBan {
		return p.fail(w.at, "at most 3650 days", "the ban is too long")
	}
	p.words, p.end = of.words, of.end
	l.spec.Ban = length.spec.Period
	return nil
}

// from reads what windows begin with: a first request, or a day of the month.
func (p *parser) from(l *Limit, day, option word) error {
	if day.s == "first" {
		p.seen["from first"] = option
		l.spec.FromFirst = true
		return nil
	}
	if l.spec.Calendar != meter.Month {
		return p.fail(option.at, `such as "per month from 15 in UTC", or "fixed_window from first"`, `"from" goes with "month" or "first"`)
	}
	n, err := p.number(day, "the day", 1)
	if err != nil || n > 31 {
		return p.fail(day.at, "a day of the month, from 1 to 31", "%q is no such day", wording.Shorten(day.s))
	}
	l.spec.Calendar = meter.MonthFrom(int(n))
	return nil
}

func (p *parser) zone(l *Limit, zone, period word) error {
	if l.spec.Calendar == meter.NoCalendar {
		switch strings.ToLower(period.s) {
		case "day":
			l.spec.Calendar = meter.Day
		case "week":
			l.spec.Calendar = meter.Week
		default:
			return p.fail(period.at, `write "per day in ZONE" or "per month in ZONE"`,
				`"in" goes with "day", "week", "month", "quarter" or "year", not %q`, wording.Shorten(p.text[p.period0:p.period1]))
		}
		l.spec.Period = 0
	}
	if _, err := meter.LoadZone(zone.s); err != nil {
		return p.fail(zone.at, zoneHint(zone.s), "%v", err)
	}
	l.spec.Zone = zone.s
	return nil
}

// suggest returns a hint with the nearest known word, or the general hint if no word is
// near.
func (p *parser) suggest(got string, known iter.Seq[string], hint string) string {
	best := wording.Nearest(strings.ToLower(wording.Shorten(got)), known, min(3, len(got)))
	if best == "" {
		return hint
	}
	return fmt.Sprintf("did you mean %q? %s", best, hint)
}
