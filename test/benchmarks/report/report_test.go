package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stint-dev/stint/test/benchmarks/report"
)

// TestRun runs one of two chapters, prints what was promised, and says when there is
// no chapter of a name.
func TestRun(t *testing.T) {
	var f *report.Figures
	closed := false
	s := report.Suite{
		Rounds: 3, Open: func(of *report.Figures) error { f = of; return nil }, Close: func() { closed = true },
		Chapters: []report.Chapter{
			{Name: "one", Title: "One", Run: func() error { f.AtMost(1.15, 2, " ×", "the %s", "first"); return nil }},
			{Name: "two", Title: "Two", Run: func() error { f.AtLeast(7, 7, "", "the second"); return nil }},
		},
	}
	var out bytes.Buffer
	if err := s.Run(&report.Figures{Out: &out, Only: "one"}); err != nil || !closed {
		t.Errorf("%v, closed: %v", err, closed)
	}
	if text := out.String(); !strings.Contains(text, "## One") || strings.Contains(text, "## Two") || !strings.Contains(text, "| the first | ≤ 1.15 × |      2 × | **no** |") {
		t.Errorf("not the first chapter alone, and its promise:\n%s", text)
	}
	if err := s.Run(&report.Figures{Out: &out, Only: "on"}); err == nil || !strings.Contains(err.Error(), "there are one, two") {
		t.Errorf("%v, want that no chapter has the name", err)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := report.Median(c.of); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.of, got, c.want)
		}
	}
}
