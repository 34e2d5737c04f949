package stint

import (
	"errors"
	"math"
	"math/bits"
	"strings"
	"time"
)

var durationUnits = []struct {
	name string
	ns   int64
}{ // longest name first, so that "ms" is not read as "m"
	{"ns", 1}, {"us", 1000}, {"µs", 1000}, {"μs", 1000}, {"ms", int64(time.Millisecond)},
	{"s", int64(time.Second)}, {"m", int64(time.Minute)}, {"h", int64(time.Hour)},
}

func isDurationUnit(name string) bool {
	for _, u := range durationUnits {
		if u.name == name {
			return true
		}
	}
	return false
}

var (
	errDurationShape = errors.New("not a duration")
	errDurationRange = errors.New("longer than 292 years")
	errDurationWhole = errors.New("not a whole number of nanoseconds")
)

// parseDuration reads a Go duration without a sign, exactly: it refuses fractions of a
// nanosecond, which time.ParseDuration drops.
func parseDuration(s string) (int64, error) {
	total := int64(0)
	for s != "" {
		number := s[:len(s)-len(strings.TrimLeft(s, "0123456789."))]
		s = s[len(number):]
		unit := int64(0)
		for _, u := range durationUnits {
			if strings.HasPrefix(s, u.name) {
				unit, s = u.ns, s[len(u.name):]
				break
			}
		}
		if unit == 0 || number == "" || number == "." {
			return 0, errDurationShape
		}
		ns, err := scaleDecimal(number, unit)
		if err != nil {
			return 0, err
		}
		if total > math.MaxInt64-ns {
			return 0, errDurationRange
		}
		total += ns
	}
	return total, nil
}

// scaleDecimal returns a decimal number times unit, if the product is whole.
func scaleDecimal(number string, unit int64) (int64, error) {
	whole, fraction, _ := strings.Cut(number, ".")
	n, err := digits(whole)
	if err != nil {
		return 0, err
	}
	fraction = strings.TrimRight(fraction, "0")
	if len(fraction) > 13 { // an hour is 2^13·…, so more digits never come out whole
		return 0, errDurationWhole
	}
	f, err := digits(fraction)
	if err != nil {
		return 0, err
	}
	scale := uint64(1)
	for range fraction {
		scale *= 10
	}
	hi, lo := bits.Mul64(uint64(f), uint64(unit)) // f < scale, so the quotient is below unit
	part, rest := bits.Div64(hi, lo, scale)
	switch {
	case rest != 0:
		return 0, errDurationWhole
	case n > (math.MaxInt64-int64(part))/unit:
		return 0, errDurationRange
	}
	return n*unit + int64(part), nil
}

func digits(s string) (int64, error) {
	n := int64(0)
	for _, c := range s {
		if c == '.' {
			return 0, errDurationShape
		}
		d := int64(c - '0')
		if n > (math.MaxInt64-d)/10 {
			return 0, errDurationRange
		}
		n = n*10 + d
	}
	return n, nil
}
