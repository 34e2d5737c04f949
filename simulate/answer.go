package simulate

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/stint-dev/stint"
)

// An Answer is what comes back for an [Op].
type Answer struct {
	// T and Key repeat what was given; NoKey leaves the key out.
	T, Key string
	NoKey  bool
	// Verb is the verb of the operation. The answer to a reset or a change has only T and Key. Only
	// the answer to take_up_to says how many units were taken.
	Verb Verb
	// Tightest is the limit that Limit and Remaining describe, as it was given. It is empty where
	// there is one limit.
	Tightest string
	// Decision is the store's answer.
	Decision stint.Decision
	// DeniedBy is the limits that denied, as they were given, in order.
	DeniedBy []string
	// Reservation is the name of the reservation, or empty if nothing was reserved.
	Reservation string
}

func (a *Answer) setTightest(limits []string) {
	if at := a.Decision.Tightest; len(limits) > 1 && at >= 0 {
		a.Tightest = limits[at]
	}
}

// AppendJSON appends the answer as a line, without its end. Fields have a fixed
// order; delay is left out when it is 0, banned when it is false.
func (a Answer) AppendJSON(b []byte) []byte {
	b = appendString(append(b, `{"t":`...), a.T)
	if !a.NoKey {
		b = appendString(append(b, `,"key":`...), a.Key)
	}
	if a.Verb == Reset || a.Verb == Change {
		return append(b, '}')
	}
	d := &a.Decision
	b = strconv.AppendBool(append(b, `,"allowed":`...), d.Allowed)
	if a.Verb == TakeUpTo {
		b = strconv.AppendInt(append(b, `,"taken":`...), d.Taken, 10)
	}
	b = strconv.AppendInt(append(b, `,"limit":`...), d.Limit, 10)
	b = strconv.AppendInt(append(b, `,"remaining":`...), d.Remaining, 10)
	if a.Tightest != "" {
		b = appendString(append(b, `,"tightest":`...), a.Tightest)
	}
	if d.RetryAfter == stint.Never {
		b = append(b, `,"retry_after":"never"`...)
	} else {
		b = appendDuration(append(b, `,"retry_after":`...), time.Duration(d.RetryAfter))
	}
	b = appendDuration(append(b, `,"reset_after":`...), d.ResetAfter)
	if d.Delay != 0 {
		b = appendDuration(append(b, `,"delay":`...), d.Delay)
	}
	for i, text := range a.DeniedBy {
		if i == 0 {
			b = append(b, `,"denied_by":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendString(b, text)
		if i == len(a.DeniedBy)-1 {
			b = append(b, ']')
		}
	}
	if d.Banned {
		b = append(b, `,"banned":true`...)
	}
	if a.Reservation != "" {
		b = appendString(append(b, `,"reservation":`...), a.Reservation)
	}
	return append(b, '}')
}

func appendDuration(b []byte, d time.Duration) []byte {
	b = append(b, '"')
	b = append(b, d.String()...)
	return append(b, '"')
}

const hexDigits = "0123456789abcdef"

// appendString appends a JSON string. Bytes that are not UTF-8 become U+FFFD; text from lines that
// were read has none.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += size
			continue
		}
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		default:
			b = append(b, c)
		}
		i++
	}
	return append(b, '"')
}
