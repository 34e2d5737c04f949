package httplimit

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/internal/ratefields"
)

// A signal is what a response says about its server's limits.
type signal struct {
	retry     time.Duration // Retry-After
	hasRetry  bool
	remaining int64         // in requests, or whatever the server counts
	reset     time.Duration // how long remaining must last
	hasQuota  bool
}

// readSignal reads the fields of a response that arrived now, and ignores malformed ones.
// Waits may be absurdly long: the caller must cap them.
func readSignal(h http.Header, now time.Time) (s signal) {
	if age, err := strconv.Atoi(trimSpace(h.Get("Age"))); err == nil && age > 0 {
		return s // a cached response tells of the past
	}
	sent := now
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		sent = date // the server's times are by its own clock
	}
	for _, line := range h[fieldRetryAfter] {
		if wait, ok := parseRetryAfter(line, sent); ok {
			s.retry, s.hasRetry = max(s.retry, wait), true
		}
	}
	if s.readRateLimit(h[fieldRateLimit]) {
		return s
	}
	for _, names := range quotaFields {
		resets := h[names[1]]
		for i, line := range h[names[0]] { // each server on the way may have added a line
			remaining, ok := parseCount(line)
			if !ok || len(resets) == 0 {
				continue
			}
			reset, ok := parseReset(resets[min(i, len(resets)-1)], sent)
			s.tighten(remaining, reset, ok)
		}
	}
	return s
}

// quotaFields are pairs of fields, older than draft 07 or a vendor's own, that say what
// remains and when it resets.
var quotaFields = [...][2]string{
	{fieldRemaining, fieldReset},
	{fieldXRemaining, fieldXReset},
	{"X-Rate-Limit-Remaining", "X-Rate-Limit-Reset"},
	{"X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
	{"X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
	{"Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"},
	{"Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"},
}

// tighten keeps the quota with the least remaining; of equal ones, the longest. A quota
// without a time is ignored: it does not say when to come back.
func (s *signal) tighten(remaining int64, reset time.Duration, known bool) {
	switch {
	case !known:
	case !s.hasQuota, remaining < s.remaining:
		s.remaining, s.reset, s.hasQuota = remaining, reset, true
	case remaining == s.remaining:
		s.reset = max(s.reset, reset)
	}
}

// readRateLimit reads RateLimit: a list of policies as in drafts 08 to 11, with the names of
// parameters that later drafts may have, or the dictionary of draft 07.
func (s *signal) readRateLimit(lines []string) bool {
	if len(lines) == 0 {
		return false
	}
	text := strings.Join(lines, ", ")
	if items, ok := parseRateLimit(text); ok {
		for _, item := range items {
			s.tighten(item.remaining, seconds(item.reset), item.reset >= 0)
		}
		return true
	}
	remaining, reset := int64(-1), int64(-1)
	for more := true; more; {
		var member string
		member, text, more = cutUnquoted(text, ',')
		name, value, _ := strings.Cut(trimSpace(member), "=")
		value, _, _ = cutUnquoted(value, ';')
		to := &remaining
		switch name {
		case "remaining":
		case "reset":
			to = &reset
		default:
			continue
		}
		n, ok := parseCount(value)
		if !ok {
			return false
		}
		*to = n
	}
	if remaining < 0 {
		return false
	}
	s.tighten(remaining, seconds(reset), reset >= 0)
	return true
}

type rateItem struct {
	remaining int64
	reset     int64 // in seconds; -1 if absent
}

// parseRateLimit reads a list of policies, each a name and its parameters (RFC 9651). It
// returns false if text is no such list, or a policy does not say what remains. It ignores
// parameters that it does not know.
func parseRateLimit(text string) (items []rateItem, ok bool) {
	for more := true; more; {
		var policy string
		policy, text, more = cutUnquoted(text, ',')
		name, rest, has := cutUnquoted(policy, ';')
		if trimSpace(name) == "" {
			return nil, false
		}
		item := rateItem{remaining: -1, reset: -1}
		next := false // the next draft renames r and t to a and w
		for has {
			var param string
			param, rest, has = cutUnquoted(rest, ';')
			name, value, _ := strings.Cut(trimSpace(param), "=")
			next = next || name == "a"
			to := &item.remaining
			switch {
			case name == "t" || name == "w" && next:
				to = &item.reset
			case name != "r" && name != "a":
				continue
			}
			n, err := strconv.ParseUint(value, 10, 63)
			if err != nil || n > ratefields.MaxInteger {
				return nil, false
			}
			*to = int64(n)
		}
		if item.remaining < 0 {
			return nil, false
		}
		items = append(items, item)
	}
	return items, true
}

// parseRetryAfter reads a number of seconds or a date; sent is the time on the
// server's clock. Fractions are rounded up, and "UTC" passes for "GMT", since
// servers write both.
func parseRetryAfter(text string, sent time.Time) (time.Duration, bool) {
	text = trimSpace(text)
	if wait, ok := parseSeconds(text); ok {
		return wait, true
	}
	if gmt, ok := strings.CutSuffix(text, "UTC"); ok {
		text = gmt + "GMT"
	}
	date, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	return max(date.Sub(sent), 0), true
}

// Numbers from these on are times since the Unix epoch, in seconds and in milliseconds: no
// server asks for a wait of 15 years, and none means a date in 1985.
const (
	leastEpochSeconds = 500_000_000
	leastEpochMillis  = 500_000_000_000
)

// parseReset reads when a quota resets, in any form that servers use: seconds from now, Unix
// seconds or milliseconds, a duration such as 6m0s, or a date.
func parseReset(text string, sent time.Time) (time.Duration, bool) {
	text = trimSpace(text)
	if f, ok := parseNumber(text); ok {
		switch {
		case f >= leastEpochMillis*1000:
			return 0, false
		case f >= leastEpochMillis:
			return max(time.UnixMilli(int64(f)).Sub(sent), 0), true
		case f >= leastEpochSeconds:
			return max(time.Unix(int64(math.Ceil(f)), 0).Sub(sent), 0), true
		}
		return seconds(int64(math.Ceil(f))), true
	}
	if d, err := time.ParseDuration(text); err == nil {
		return max(d, 0), d >= 0
	}
	for _, layout := range [...]string{time.RFC3339, "2006-01-02T15:04Z07:00"} { // Atlassian sends the latter
		if at, err := time.Parse(layout, text); err == nil {
			return max(at.Sub(sent), 0), true
		}
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(sent), 0), true
	}
	return 0, false
}

// parseCount reads a whole number, the first of a list: old drafts list policies behind it.
func parseCount(text string) (int64, bool) {
	text, _, _ = strings.Cut(text, ",")
	if text = trimSpace(text); text == "" || text[0] < '0' || text[0] > '9' {
		return 0, false
	}
	f, ok := parseNumber(text)
	if !ok || f > ratefields.MaxInteger {
		return 0, false
	}
	return int64(f), true // rounded down: half a request is none
}

func parseSeconds(text string) (time.Duration, bool) {
	f, ok := parseNumber(text)
	if !ok {
		return 0, false
	}
	return seconds(int64(min(math.Ceil(f), ratefields.MaxInteger))), true
}

// parseNumber reads digits with or without a fraction, and no other form that strconv
// accepts.
func parseNumber(text string) (float64, bool) {
	if text == "" || len(text) > 32 || strings.Trim(text, "0123456789.") != "" || text[0] == '.' {
		return 0, false
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil
}

// seconds returns n seconds, or the longest duration if that is too many.
func seconds(n int64) time.Duration {
	if n > int64(math.MaxInt64/time.Second) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Second
}
