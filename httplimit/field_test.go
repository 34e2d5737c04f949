// This test is inside of the package, since it holds the encoder and the parsers
// to their grammar directly.

package httplimit

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/ratefields"
)

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
