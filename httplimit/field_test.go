// This test is inside of the package, since it holds the encoder and the parsers
// to their grammar directly.

package httplimit

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/ratefields"
	"github.com/stint-dev/stint/meter"
)

// checkPolicies reads strictly the lists that this package writes, and shares no code with
// its parser: members have the form "name";key=integer;key=integer, no more, no less.
func checkPolicies(text string, keys ...string) (names []string, err error) {
	for {
		name, rest, err := checkString(text)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
		for _, key := range keys {
			var ok bool
			if rest, ok = strings.CutPrefix(rest, ";"+key+"="); !ok {
				return nil, errors.New("no " + key + " at " + rest)
			}
			end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
			if end < 0 {
				end = len(rest)
			}
			if end == 0 || end > 15 || rest[0] == '0' && end > 1 {
				return nil, errors.New("no integer at " + rest)
			}
			rest = rest[end:]
		}
		if rest == "" {
			return names, nil
		}
		var ok bool
		if text, ok = strings.CutPrefix(rest, ", "); !ok {
			return nil, errors.New("no comma at " + rest)
		}
	}
}

func checkString(text string) (value, rest string, err error) {
	if !strings.HasPrefix(text, `"`) {
		return "", "", errors.New("no string at " + text)
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"':
			return b.String(), text[i+1:], nil
		case c < 0x20 || c >= 0x7f:
			return "", "", errors.New("byte " + strconv.Itoa(int(c)))
		case c == '\\':
			if i++; i == len(text) || text[i] != '"' && text[i] != '\\' {
				return "", "", errors.New("escape")
			}
			c = text[i]
		}
		b.WriteByte(c)
	}
	return "", "", errors.New("open string")
}

// TestFields checks that the fields of many limits and decisions follow the grammar and make
// sense.
func TestFields(t *testing.T) {
	const most = 1<<63 - 1
	limits := []stint.Limit{
		stint.PerMinute(100), stint.PerSecond(10).WithBurst(1), stint.PerSecond(10).WithBurst(600),
		stint.New(1, time.Nanosecond), stint.New(most, time.Second).WithAlgorithm(meter.FixedWindow), stint.PerDayIn(5, "UTC"), stint.PerMonthIn(5, "UTC"),
		stint.New(7, 90*time.Second), stint.Every(100 * 365 * 24 * time.Hour), stint.PerSecond(3).WithAlgorithm(meter.LeakyQueue).WithBurst(0),
		stint.New(5, time.Minute).WithAlgorithm(meter.TokenBucketInterval).WithBurst(12), stint.New(5, time.Minute).WithAlgorithm(meter.SlidingLog),
	}
	decisions := []stint.Decision{
		{Allowed: true}, {Allowed: true, Limit: 100, Remaining: 99, ResetAfter: 1}, {Limit: 100, RetryAfter: 1},
		{RetryAfter: stint.Never, Remaining: 3, Limit: 5}, {Allowed: true, Remaining: most, ResetAfter: most, Limit: most}, {RetryAfter: most},
		{Allowed: true, Remaining: -1, ResetAfter: -1},
	}
	for _, l := range limits {
		if err := l.Validate(); err != nil {
			t.Fatal(err)
		}
		for dialect := range Dialect(dialects) {
			for _, list := range [][]stint.Limit{{l}, limits} {
				e := newEncoder(dialect, fieldsOf(list))
				for _, d := range decisions {
					h := make(http.Header)
					e.set(h, &d, "")
					checkHeader(t, h, dialect, len(list))
				}
			}
		}
	}
}

func checkHeader(t *testing.T, h http.Header, dialect Dialect, n int) {
	t.Helper()
	for name, values := range h {
		if len(values) != 1 || http.CanonicalHeaderKey(name) != name {
			t.Errorf("%s: %q", name, values)
		}
	}
	integers := map[Dialect][]string{
		XRateLimit: {fieldXLimit, fieldXRemaining, fieldXReset}, Draft06: {fieldLimit, fieldRemaining, fieldReset},
	}[dialect]
	for _, name := range integers {
		if v, err := strconv.ParseInt(h.Get(name), 10, 64); err != nil || v < 0 {
			t.Errorf("%s: %q", name, h.Get(name))
		}
	}
	want := map[Dialect]int{Draft11: 2, XRateLimit: 3, Draft06: 4}[dialect]
	if len(h) != want {
		t.Errorf("dialect %d: %d fields, want %d: %v", dialect, len(h), want, h)
	}
	if dialect != Draft11 {
		return
	}
	if names, err := checkPolicies(h.Get(fieldPolicy), "q", "w"); err != nil || len(names) != n {
		t.Errorf("%q: %v", h.Get(fieldPolicy), err)
	}
	if names, err := checkPolicies(h.Get(fieldRateLimit), "r", "t"); err != nil || len(names) != 1 {
		t.Errorf("%q: %v", h.Get(fieldRateLimit), err)
	}
}

func TestQuota(t *testing.T) {
	for text, want := range map[string][2]int64{
		"100 per minute": {100, 60}, "100 per minute burst 20": {20, 12}, "10/s burst 20": {20, 2}, "10/s burst 2": {10, 1},
		"every 2s": {1, 2}, "every 1500ms": {1, 2}, "1/100ms": {10, 1}, "5/1h sliding_log": {5, 3600}, "5/day in UTC": {5, 86400},
		"5/1m burst 12 token_bucket_interval": {12, 180}, "1/s burst 5 leaky_queue": {6, 6}, "5/1500ms fixed_window": {5, 2},
	} {
		l, err := stint.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if f := ratefields.Of("", l); f.Quota != want[0] || f.Window != want[1] {
			t.Errorf("%s: q=%d;w=%d, want %v", text, f.Quota, f.Window, want)
		}
	}
}

func fieldsOf(limits []stint.Limit) (all []ratefields.Limit) {
	for _, l := range limits {
		all = append(all, ratefields.Of(l.Name(), l))
	}
	return all
}

// TestPace looks at r/t: on allowed answers it is never above the pace of a
// bucket.
func TestPace(t *testing.T) {
	l := stint.PerSecond(10).WithBurst(1000)
	e := newEncoder(Draft11, fieldsOf([]stint.Limit{l}))
	for _, r := range []int64{0, 1, 10, 11, 999, 1000} {
		h := make(http.Header)
		e.set(h, &stint.Decision{Allowed: true, Limit: 1000, Remaining: r, ResetAfter: time.Duration(1000-r) * 100 * time.Millisecond}, "")
		items, ok := parseRateLimit(h.Get(fieldRateLimit))
		if !ok || items[0].remaining != r || r > 10*items[0].reset {
			t.Errorf("r %d: %v", r, h)
		}
	}
}

// TestCeilUnix rounds up, never down.
func TestCeilUnix(t *testing.T) {
	base := time.Unix(1000, 0)
	for _, test := range []struct {
		now  time.Time
		wait time.Duration
		want int64
	}{
		{base, 0, 1000}, {base, 1, 1001}, {base, time.Second, 1001}, {base.Add(1), time.Second - 1, 1001},
		{base.Add(1), time.Second, 1002}, {base.Add(999_999_999), 2, 1002}, {base, 1<<63 - 1, 1000 + 9223372037},
	} {
		if got := ceilUnix(test.now, test.wait); got != test.want {
			t.Errorf("%v + %v: %d, want %d", test.now, test.wait, got, test.want)
		}
	}
}

func TestParseRateLimit(t *testing.T) {
	for text, want := range map[string][]rateItem{
		`"a";r=50;t=30`:                          {{50, 30}},
		` "a";r=50;t=30 `:                        {{50, 30}},
		`"a"; r=50; t=30`:                        {{50, 30}},
		`"a";r=0`:                                {{0, -1}},
		`"a";t=1;r=2 ,	"b";r=3;t=4`:              {{2, 1}, {3, 4}},
		`"a\"\\b,;r=7";r=1`:                      {{1, -1}},
		`tok*en/x:y;r=1`:                         {{1, -1}},
		`"a";r=1;pk=:aGk=:;x;y=?1;z=1.5;d=@12`:   {{1, -1}},
		`"a";r=1;d=%"f%c3%bc r";e=";t=9";t=3`:    {{1, 3}},
		`"a";r=0;d=%"\";t=1;e="\";t=9"`:          {{0, 1}}, // a display string has no escapes
		`"a";r=1;r=2`:                            {{2, -1}},
		`"api";a=99;w=60;c=1;pk=:R0VUH2FsaWNl:`:  {{99, 60}},
		`"a";r=1;w=60`:                           {{1, -1}},
		`"a";r=999999999999999;t=99999999999999`: {{999999999999999, 99999999999999}},
		``:                                       nil,
		`"a"`:                                    nil,
		`"a";t=3`:                                nil,
		`"a";r=1,`:                               nil,
		`,"a";r=1`:                               nil,
		`;r=1`:                                   nil,
		`"a";r=-1`:                               nil,
		`"a";r=+1`:                               nil,
		`"a";r=1.0`:                              nil,
		`"a";r="1"`:                              nil,
		`"a";r=`:                                 nil,
		`"a";r=1;t=x`:                            nil,
		`"a";r=1000000000000000`:                 nil,
		`"a";R=1`:                                nil,
		`"a";r =1`:                               nil,
		`"a;r=1`:                                 nil,
		`"a";r=1 "b";r=1`:                        nil,
		`limit=10, remaining=1, reset=7`:         nil,
	} {
		items, ok := parseRateLimit(text)
		if ok != (want != nil) || !slices.Equal(items, want) {
			t.Errorf("%s: %v, %v, want %v", text, items, ok, want)
		}
	}
}

// FuzzSignal looks for signals out of range.
func FuzzSignal(f *testing.F) {
	for _, text := range []string{
		`"a";r=50;t=30`, `"a\"\\b";r=1, tok;r=2;t=3`, `"a";r=1;pk=:aGk=:;x;y=?1;z=1.5;d=@12`, `limit=10, remaining=1, reset=7`,
		`"api";a=99;w=60`, `("a" "b");r=1`, `"a";r=999999999999999`, "\"a\r\n\";r=1", "Wed, 21 Oct 2026 07:28:00 GMT", "6m0s", "1.5",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		items, ok := parseRateLimit(text)
		for _, item := range items {
			if !ok || item.remaining < 0 || item.remaining > ratefields.MaxInteger || item.reset < -1 || item.reset > ratefields.MaxInteger {
				t.Fatalf("%q: %+v, %v", text, items, ok)
			}
		}
		now := time.Unix(1_700_000_000, 0)
		for _, name := range []string{fieldRateLimit, fieldXReset, fieldRetryAfter} {
			s := readSignal(http.Header{name: {text}, fieldXRemaining: {text, "0"}, "Date": {text}}, now)
			if s.retry < 0 || s.reset < 0 || s.remaining < 0 {
				t.Fatalf("%s %q: %+v", name, text, s)
			}
		}
	})
}

// FuzzQuote: names of limits, quoted, hold nothing that a header may not hold.
func FuzzQuote(f *testing.F) {
	for _, name := range []string{"login", "a\"b\\c", "a\r\nSet-Cookie: x", "Zürich", "\x00\x7f\xff", ""} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		plain := ratefields.Printable(name)
		value, rest, err := checkString(ratefields.Quote(plain))
		if err != nil || rest != "" || value != plain {
			t.Fatalf("%q is written %q: %v", name, ratefields.Quote(plain), err)
		}
		if ascii := !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }); ascii && plain != name {
			t.Fatalf("%q became %q", name, plain)
		}
	})
}
