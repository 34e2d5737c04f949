package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestQuick runs everything on small numbers. It asserts no timing, only that
// every contender admits what it should and every chapter comes to its end.
func TestQuick(t *testing.T) {
	var out bytes.Buffer
	f := figures{out: &out, quick: true}
	if err := f.run(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, title := range []string{"Decisions", "Leases and denials", "Bytes a key", "Promises"} {
		if !strings.Contains(out.String(), "\n## "+title+"\n") {
			t.Errorf("chapter %q left no trace", title)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := median(c.of); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.of, got, c.want)
		}
	}
}
