package simulate

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"
)

var (
	errShape = errors.New(`not a duration such as "1h30m" or "250ms"`)
	errRange = errors.New("beyond 292 years")
	errWhole = errors.New("not a whole number of nanoseconds")
)

// parseTime reads a Go duration since the Unix epoch, or an RFC 3339 time, as
// nanoseconds since the epoch.
func parseTime(s string) (int64, error) {
	if len(s) < len("2006-01-02T") || s[4] != '-' || s[10] != 'T' {
		return parseDuration(s)
	}
	var t time.Time
	err := t.UnmarshalText([]byte(s))
	if err != nil || s[13] != ':' || strings.Contains(s, ",") { // which package time lets pass
		return 0, fmt.Errorf("%q is not an RFC 3339 time", s)
	}
	if t.Before(time.Unix(0, math.MinInt64)) || t.After(time.Unix(0, math.MaxInt64)) {
		return 0, fmt.Errorf("%s: %w from 1970", s, errRange)
	}
	_, fraction, _ := strings.Cut(s, ".") // and the zone; below 1ns is dropped
	fraction = fraction[:len(fraction)-len(strings.TrimLeft(fraction, "0123456789"))]
	if len(strings.TrimRight(fraction, "0")) > 9 {
		return 0, fmt.Errorf("%s: %w", s, errWhole)
	}
	return t.UnixNano(), nil
}

// parseDuration reads what time.ParseDuration reads, but exactly: where that
// drops what lies below a nanosecond, this refuses it.
func parseDuration(s string) (int64, error) {
	rest, negative := strings.CutPrefix(s, "-")
	if !negative {
		rest = strings.TrimPrefix(s, "+")
	}
	if rest == "0" {
		return 0, nil
	}
	if rest == "" {
		return 0, errShape
	}
	total := uint64(0) // at most 2^63
	for rest != "" {
		ns, n, err := parseTerm(rest)
		if err != nil {
			return 0, fmt.Errorf("%q: %w", s, err)
		}
		if total += ns; total > 1<<63 {
			return 0, fmt.Errorf("%q: %w", s, errRange)
		}
		rest = rest[n:]
	}
	if negative {
		return -int64(total), nil // also right for -2^63
	}
	if total == 1<<63 {
		return 0, fmt.Errorf("%q: %w", s, errRange)
	}
	return int64(total), nil
}

// parseTerm reads one number with its unit from the start of s, and returns the
// nanoseconds, at most 2^63, and how long it was.
func parseTerm(s string) (ns uint64, length int, err error) {
	i := 0
	whole := uint64(0)
	for ; i < len(s) && isDigit(s[i]); i++ {
		if whole > (1<<63-uint64(s[i]-'0'))/10 {
			return 0, 0, errRange
		}
		whole = whole*10 + uint64(s[i]-'0')
	}
	digits, fraction := i, ""
	if i < len(s) && s[i] == '.' {
		begin := i + 1
		for i = begin; i < len(s) && isDigit(s[i]); i++ {
		}
		fraction = s[begin:i]
		digits += len(fraction)
	}
	unit, n := parseUnit(s[i:])
	if digits == 0 || n == 0 {
		return 0, 0, errShape
	}
	part, err := parsePart(strings.TrimRight(fraction, "0"), unit)
	if err != nil {
		return 0, 0, err
	}
	hi, lo := bits.Mul64(whole, unit)
	sum, carry := bits.Add64(lo, part, 0)
	if hi+carry != 0 || sum > 1<<63 {
		return 0, 0, errRange
	}
	return sum, i + n, nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// parsePart returns the decimals times unit, if that is whole. An hour of
// nanoseconds is 2^13·3^2·5^11, so more than 13 decimals never are.
func parsePart(decimals string, unit uint64) (uint64, error) {
	if len(decimals) > 13 {
		return 0, errWhole
	}
	f, scale := uint64(0), uint64(1)
	for i := range len(decimals) {
		f, scale = f*10+uint64(decimals[i]-'0'), scale*10
	}
	hi, lo := bits.Mul64(f, unit) // f < scale, so the quotient is below unit
	part, rest := bits.Div64(hi, lo, scale)
	if rest != 0 {
		return 0, errWhole
	}
	return part, nil
}

// parseUnit returns the unit that s begins with, in nanoseconds, and how long
// its name is; 0 and 0 if there is none.
func parseUnit(s string) (ns uint64, length int) {
	for length < len(s) && s[length] != '.' && !isDigit(s[length]) {
		length++
	}
	switch s[:length] {
	case "ns":
		return 1, length
	case "us", "µs", "μs": // U+00B5, U+03BC
		return uint64(time.Microsecond), length
	case "ms":
		return uint64(time.Millisecond), length
	case "s":
		return uint64(time.Second), length
	case "m":
		return uint64(time.Minute), length
	case "h":
		return uint64(time.Hour), length
	}
	return 0, 0
}
