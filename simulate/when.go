package simulate

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strings"
	"time"
)

var (
	errShape = errors.New(`not a duration such as "1h30m" or "250ms", of at most 292 years`)
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
	if err != nil || s[13] != ':' || strings.Contains(s, ",") { // package time accepts both
		return 0, fmt.Errorf("%q is not an RFC 3339 time", s)
	}
	if t.Before(time.Unix(0, math.MinInt64)) || t.After(time.Unix(0, math.MaxInt64)) {
		return 0, fmt.Errorf("%s: %w from 1970", s, errRange)
	}
	_, fraction, _ := strings.Cut(s, ".") // the fraction and the zone; package time drops digits below 1ns
	fraction = fraction[:len(fraction)-len(strings.TrimLeft(fraction, "0123456789"))]
	if len(strings.TrimRight(fraction, "0")) > 9 {
		return 0, fmt.Errorf("%s: %w", s, errWhole)
	}
	return t.UnixNano(), nil
}

// parseDuration reads what time.ParseDuration reads, but refuses a fraction below a nanosecond,
// which that function drops.
func parseDuration(s string) (int64, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q: %w", s, errShape)
	}
	if !strings.Contains(s, ".") {
		return int64(d), nil
	}
	exact := new(big.Rat)
	for _, term := range terms.FindAllStringSubmatch(s, -1) {
		whole, fraction, unit := term[1], strings.TrimRight(term[2], "0"), units[term[3]]
		if len(fraction) > 13 { // more cannot be whole: an hour has 2^13·3^2·5^11 nanoseconds
			return 0, fmt.Errorf("%q: %w", s, errWhole)
		}
		n, _ := new(big.Rat).SetString("0" + whole + "." + fraction + "0")
		exact.Add(exact, n.Mul(n, new(big.Rat).SetInt64(int64(unit))))
	}
	if strings.HasPrefix(s, "-") {
		exact.Neg(exact)
	}
	switch ns := exact.Num(); {
	case !exact.IsInt():
		return 0, fmt.Errorf("%q: %w", s, errWhole)
	case !ns.IsInt64():
		return 0, fmt.Errorf("%q: %w", s, errShape)
	default:
		return ns.Int64(), nil
	}
}

var terms = regexp.MustCompile(`(\d*)(?:\.(\d*))?([a-zµμ]+)`)

var units = map[string]time.Duration{
	"ns": 1, "us": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond, // U+00B5, U+03BC
	"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour,
}
