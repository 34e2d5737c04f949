package wording_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stint-dev/stint/internal/wording"
)

func TestNearest(t *testing.T) {
	known := []string{"limits", "limit", "match", "header"}
	for word, want := range map[string]string{
		"limts": "limits", "limt": "limit", "mach": "match", "heder": "header", "zzz": "", "": "",
		"limis": "limit", "limik": "limit",
	} {
		if got := wording.Nearest(word, slices.Values(known), min(3, len(word)/2)); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
	if a, b := wording.Distance("burst", "bursts"), wording.Distance("a", "abcdef"); a != 1 || b != 4 {
		t.Errorf("distances %d and %d", a, b)
	}
	for _, pair := range [][2]string{{"kye", "key"}, {"naem", "name"}, {"key", "kye"}, {"ab", "ba"}} {
		if n := wording.Distance(pair[0], pair[1]); n != 1 {
			t.Errorf("%s and %s, of which two letters change places: distance %d", pair[0], pair[1], n)
		}
	}
}

func TestQuoteShell(t *testing.T) {
	for text, want := range map[string]string{
		"a.log": "a.log", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'", "-": "-", "--x": "'--x'",
	} {
		if got := wording.QuoteShell(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -999: "-999", -1000: "-1,000", math.MinInt64: "-9,223,372,036,854,775,808"} {
		if got := wording.Grouped(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 requests", 1: "1 request", 2000: "2,000 requests"} {
		if got := wording.Count(n, "request"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestBars(t *testing.T) {
	for _, c := range []struct {
		counts []int64
		full   int64
		want   string
	}{
		{[]int64{0, 1, 2, 7, 8}, 8, " ▂▃▇█"},
		{[]int64{0, 1, 999, 1000}, 1000, " ▁▇█"},
		{[]int64{0, 0}, 0, "  "},
		{[]int64{1<<63 - 2, 1<<63 - 1}, 1<<63 - 1, "▇█"},
	} {
		if got := wording.Bars(c.counts, c.full); got != c.want {
			t.Errorf("%d of %d: %q, want %q", c.counts, c.full, got, c.want)
		}
	}
}
