package accesslog

import (
	"math"
	"time"
)

// Times must lie in these years, so that nanoseconds since 1970 stay far within int64.
const (
	firstYear = 1970
	lastYear  = 2200
)

// two reads two digits.
func two(b []byte) (int, bool) {
	x, y := b[0]-'0', b[1]-'0'
	return int(x)*10 + int(y), x <= 9 && y <= 9
}

// digits reads a whole number of at most 18 digits.
func digits(b []byte) (n int64, ok bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	for _, c := range b {
		if c -= '0'; c > 9 {
			return 0, false
		}
		n = n*10 + int64(c)
	}
	return n, true
}

// days returns the days from the epoch to a date, and false if the date does not exist.
func days(year, month, day int) (int64, bool) {
	if year < firstYear || year > lastYear || month < 1 || month > 12 || day < 1 || day > 31 {
		return 0, false
	}
	t := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	return t.Unix() / 86400, t.Day() == day
}

// clock reads 15:04:05 as seconds; a leap second counts as the next one.
func clock(b []byte) (int64, bool) {
	h, ok1 := two(b)
	m, ok2 := two(b[3:])
	s, ok3 := two(b[6:])
	ok := ok1 && ok2 && ok3 && b[2] == ':' && b[5] == ':' && h < 24 && m < 60 && s <= 60
	return int64(h)*3600 + int64(m)*60 + int64(s), ok
}

// offset reads +0200, +02:00 or Z as seconds east, and returns how long it is.
func offset(b []byte) (seconds int64, n int, ok bool) {
	if len(b) >= 1 && (b[0] == 'Z' || b[0] == 'z') {
		return 0, 1, true
	}
	if len(b) < 5 || b[0] != '+' && b[0] != '-' {
		return 0, 0, false
	}
	n, at := 5, 3
	if b[3] == ':' {
		n, at = 6, 4
	}
	if len(b) < n {
		return 0, 0, false
	}
	h, ok1 := two(b[1:])
	m, ok2 := two(b[at:])
	if !ok1 || !ok2 || h > 24 || m > 59 {
		return 0, 0, false
	}
	if seconds = int64(h)*3600 + int64(m)*60; b[0] == '-' {
		seconds = -seconds
	}
	return seconds, n, true
}

// month reads the English name of a month in three letters, in any case.
func month(b []byte) int {
	const names = "janfebmaraprmayjunjulaugsepoctnovdec"
	for i := 0; i < len(names); i += 3 {
		if b[0]|0x20 == names[i] && b[1]|0x20 == names[i+1] && b[2]|0x20 == names[i+2] {
			return i/3 + 1
		}
	}
	return 0
}

// clfLength is the length of 17/May/2015:10:05:03 +0000.
const clfLength = 26

// A clf reads times of the common log format. It remembers the last date, since consecutive lines
// mostly have the same.
type clf struct {
	date  [12]byte // 17/May/2015:
	zone  [6]byte
	start int64 // the beginning of that day in that zone, in seconds
	known bool
}

// read returns the nanoseconds of a time of clfLength bytes.
func (c *clf) read(b []byte) (int64, bool) {
	_ = b[clfLength-1]
	if !c.known || string(b[:12]) != string(c.date[:]) || string(b[20:clfLength]) != string(c.zone[:]) {
		if !c.learn(b) {
			return 0, false
		}
	}
	h := uint(b[12]-'0')*10 + uint(b[13]-'0')
	m := uint(b[15]-'0')*10 + uint(b[16]-'0')
	s := uint(b[18]-'0')*10 + uint(b[19]-'0')
	bad := b[12]-'0' > 9 || b[13]-'0' > 9 || b[15]-'0' > 9 || b[16]-'0' > 9 || b[18]-'0' > 9 || b[19]-'0' > 9
	if bad || h > 23 || m > 59 || s > 60 || b[14] != ':' || b[17] != ':' {
		return 0, false
	}
	at := (c.start + int64(h*3600+m*60+s)) * 1e9
	return at, at >= 0
}

func (c *clf) learn(b []byte) bool {
	day, ok1 := two(b)
	year, ok2 := digits(b[7:11])
	east, n, ok3 := offset(b[21:])
	if !ok1 || !ok2 || !ok3 || n != 5 || b[2] != '/' || b[6] != '/' || b[11] != ':' || b[20] != ' ' {
		return false
	}
	d, ok := days(int(year), month(b[3:]), day)
	if !ok {
		return false
	}
	copy(c.date[:], b)
	copy(c.zone[:], b[20:])
	c.start, c.known = d*86400-east, true
	return true
}

// is reports whether b is a time.
func (c *clf) is(b []byte) bool {
	if len(b) != clfLength {
		return false
	}
	_, ok := c.read(b)
	return ok
}

// A calendar reads times of any supported form.
type calendar struct {
	zone   *time.Location
	latest time.Time
	clf    clf
}

func newCalendar(o *Options) calendar {
	c := calendar{zone: o.Zone, latest: o.Latest}
	if c.zone == nil {
		c.zone = time.UTC
	}
	if c.latest.IsZero() {
		c.latest = time.Now()
	}
	return c
}

// read reads an RFC 3339 time, also with a blank for the T, as 2015/05/17, or without a zone; a
// time of the common log format; or a number of seconds, milli-, micro- or nanoseconds since the
// epoch, told apart by its size.
func (c *calendar) read(b []byte) (int64, bool) {
	if len(b) == clfLength+2 && b[0] == '[' {
		b = b[1 : clfLength+1]
	}
	switch {
	case len(b) == clfLength && b[2] == '/':
		return c.clf.read(b)
	case len(b) >= clfStamp && b[2] == '/':
		return c.finer(b)
	case len(b) >= 19 && (b[4] == '-' || b[4] == '/'):
		return c.iso(b)
	}
	return epoch(b)
}

// is reports whether b is a time, as a log of this form has it.
func (c *calendar) is(b []byte) bool {
	_, ok := c.read(b)
	return ok
}

// clfStamp is the length of 17/May/2015:10:05:03.
const clfStamp = 20

// finer reads a time of the common log format with a fraction, as Apache and HAProxy may write it,
// or without a zone.
func (c *calendar) finer(b []byte) (int64, bool) {
	var whole [clfLength]byte
	copy(whole[:], b[:clfStamp])
	rest, nanos := b[clfStamp:], int64(0)
	if len(rest) > 0 && (rest[0] == '.' || rest[0] == ',') {
		n := 1
		for n < len(rest) && rest[n]-'0' <= 9 {
			n++
		}
		var ok bool
		if nanos, ok = fraction(rest[1:n], 9); !ok {
			return 0, false
		}
		rest = rest[n:]
	}
	if len(rest) == clfLength-clfStamp {
		copy(whole[clfStamp:], rest)
		at, ok := c.clf.read(whole[:])
		return at + nanos, ok
	}
	copy(whole[clfStamp:], " +0000")
	at, ok := c.clf.read(whole[:])
	if !ok || len(rest) > 0 {
		return 0, false
	}
	return c.local(at/86400e9, at/1e9%86400, nanos)
}

// pair reads a time whose day and time of day are two fields. The day is 2015-05-17 or 17/May/2015.
func (c *calendar) pair(date, clock []byte) (int64, bool) {
	var both [64]byte
	if len(date)+len(clock)+1 > len(both) {
		return 0, false
	}
	joint := byte('T')
	if len(date) > 2 && date[2] == '/' {
		joint = ':'
	}
	n := copy(both[:], date)
	both[n] = joint
	n += 1 + copy(both[n+1:], clock)
	return c.read(both[:n])
}

func (c *calendar) iso(b []byte) (int64, bool) {
	year, ok1 := digits(b[:4])
	mon, ok2 := two(b[5:])
	day, ok3 := two(b[8:])
	seconds, ok4 := clock(b[11:19])
	if !ok1 || !ok2 || !ok3 || !ok4 || b[7] != b[4] || b[10] != 'T' && b[10] != 't' && b[10] != ' ' {
		return 0, false
	}
	d, ok := days(int(year), mon, day)
	if !ok {
		return 0, false
	}
	b = b[19:]
	nanos := int64(0)
	if len(b) > 0 && (b[0] == '.' || b[0] == ',') {
		n := 1
		for n < len(b) && b[n]-'0' <= 9 {
			n++
		}
		if nanos, ok = fraction(b[1:n], 9); !ok {
			return 0, false
		}
		b = b[n:]
	}
	if len(b) == 0 {
		return c.local(d, seconds, nanos)
	}
	if b[0] == ' ' {
		b = b[1:]
	}
	east, n, ok := offset(b)
	at := (d*86400+seconds-east)*1e9 + nanos
	return at, ok && n == len(b) && at >= 0
}

// local returns a time of day in the zone of the options. When clocks are set back, a time occurs
// twice, and the first is taken; a time that clocks skip is moved forward.
func (c *calendar) local(d, seconds, nanos int64) (int64, bool) {
	if c.zone == time.UTC {
		return (d*86400+seconds)*1e9 + nanos, true
	}
	wall := d*86400 + seconds // as if it were UTC
	shows := func(t time.Time) bool {
		_, east := t.Zone()
		return t.Unix()+int64(east) == wall
	}
	_, before := time.Unix(wall, 0).In(c.zone).Add(-36 * time.Hour).Zone()
	t := time.Unix(wall-int64(before), 0).In(c.zone)
	if !shows(t) { // the offset is another one at t
		_, now := time.Unix(wall, 0).In(c.zone).Add(36 * time.Hour).Zone()
		if later := time.Unix(wall-int64(now), 0).In(c.zone); shows(later) {
			t = later
		}
	}
	return t.UnixNano() + nanos, t.Unix() >= 0
}

// fraction reads the digits behind a point as a number of units of 10^−decimals; further digits are
// dropped.
func fraction(b []byte, decimals int) (int64, bool) {
	if len(b) == 0 {
		return 0, false
	}
	n := int64(0)
	for i := range decimals {
		n *= 10
		if i < len(b) {
			n += int64(b[i] - '0')
		}
	}
	for _, c := range b {
		if c-'0' > 9 {
			return 0, false
		}
	}
	return n, true
}

// epoch reads a number of seconds (below 10^11), milli-, micro- or nanoseconds.
func epoch(b []byte) (int64, bool) {
	whole, rest := b, []byte(nil)
	for i, c := range b {
		if c == '.' {
			whole, rest = b[:i], b[i+1:]
			break
		}
	}
	if len(whole) == 19 && rest == nil { // nanoseconds since 2001
		n, ok := digits(whole[:18])
		last := whole[18] - '0'
		return n*10 + int64(last), ok && last <= 9 && n < math.MaxInt64/10
	}
	n, ok := digits(whole)
	if !ok {
		return 0, false
	}
	unit, decimals := int64(1e9), 9
	switch {
	case n >= 1e17:
		unit, decimals = 1, 0
	case n >= 1e14:
		unit, decimals = 1e3, 3
	case n >= 1e11:
		unit, decimals = 1e6, 6
	}
	if n > (lastYear-firstYear)*366*86400*(1e9/unit) {
		return 0, false
	}
	n *= unit
	if rest != nil {
		below, ok := fraction(rest, decimals)
		return n + below, ok
	}
	return n, true
}

// stampLength is the length of May 17 10:05:03.
const stampLength = 15

// stamp reads the time of a syslog line, which has no year. It takes the latest year that makes the
// time at most a day later than the options' Latest.
func (c *calendar) stamp(b []byte) (int64, bool) {
	m := month(b)
	if b[3] != ' ' || b[6] != ' ' || m == 0 {
		return 0, false
	}
	text := [2]byte{b[4], b[5]}
	if text[0] == ' ' {
		text[0] = '0'
	}
	day, ok1 := two(text[:])
	seconds, ok2 := clock(b[7:stampLength])
	if !ok1 || !ok2 {
		return 0, false
	}
	bound := c.latest.Add(24 * time.Hour)
	for year := bound.In(c.zone).Year(); year > c.latest.Year()-9; year-- { // February 29 may be nine years back
		d, ok := days(year, m, day)
		if !ok {
			continue
		}
		if at, ok := c.local(d, seconds, 0); ok && at <= bound.UnixNano() {
			return at, true
		}
	}
	return 0, false
}
