package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// A Duration is a time.Duration whose text is short: 3d4h, 1m30s, 250ms. In JSON it is written as
// time.Duration writes it.
type Duration time.Duration

// MarshalJSON writes the duration as a string.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	t, err := time.ParseDuration(text)
	*d = Duration(t)
	return err
}

// String returns the duration in at most two units.
func (d Duration) String() string {
	t := time.Duration(d)
	const day = 24 * time.Hour
	var s string
	switch {
	case t >= 100*365*day:
		return "over 100 years"
	case t >= day:
		if hours := t % day / time.Hour; hours > 0 {
			return fmt.Sprintf("%dd%dh", t/day, hours)
		}
		return fmt.Sprintf("%dd", t/day)
	case t >= time.Hour:
		s = t.Round(time.Minute).String()
	case t >= time.Minute:
		s = t.Round(time.Second).String()
	case t >= time.Second:
		s = t.Round(10 * time.Millisecond).String()
	default:
		s = t.String()
	}
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// timeOf returns the length of n bars.
func timeOf(bar Duration, n int) time.Duration { return time.Duration(bar) * time.Duration(n) }
