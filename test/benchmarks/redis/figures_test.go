package redis

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stint-dev/stint/test/benchmarks/report"
)

// TestShort runs everything on small numbers. It asserts no timing, only that
// every contender admits what it should and every chapter comes to its end.
func TestShort(t *testing.T) {
	var out bytes.Buffer
	s := Suite()
	if err := s.Run(&report.Figures{Out: &out, Short: true}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, c := range s.Chapters {
		if !strings.Contains(out.String(), "\n## "+c.Title+"\n") {
			t.Errorf("chapter %q left no trace", c.Title)
		}
	}
}
