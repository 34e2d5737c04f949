package redis

import (
	"bytes"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/test/benchmarks/report"
)

// TestShort runs everything on small numbers. It asserts no timing, only that
// every contender admits what it should and every chapter comes to its end.
func TestShort(t *testing.T) {
	var out bytes.Buffer
	s := Suite(flag.NewFlagSet("", flag.ContinueOnError))
	if err := s.Run(&report.Figures{Out: &out, Short: true}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, c := range s.Chapters {
		if !strings.Contains(out.String(), "\n## "+c.Title+"\n") {
			t.Errorf("chapter %q left no trace", c.Title)
		}
	}
}

// TestJudge sorts the calls of a stall from 100 to 200 ms, whose breaker is
// seen open at 130 ms, and after which Redis decides at 240 ms.
func TestJudge(t *testing.T) {
	at := func(begun, ended int, said word) ask {
		return ask{time.Duration(begun) * time.Millisecond, time.Duration(ended) * time.Millisecond, said}
	}
	all := []ask{
		at(10, 11, notAsked), at(50, 60, decided), // of before
		at(98, 126, ambiguous), at(99, 101, decided), at(101, 129, notSent), at(129, 130, notAsked),
		at(131, 131, notAsked), at(132, 132, notAsked), at(140, 165, ambiguous), at(190, 215, ambiguous),
		at(201, 201, notAsked), at(239, 240, decided), at(241, 242, decided), // of after
	}
	r, err := judge(all, 100*time.Millisecond, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if r.said != [...]int{decided: 1, ambiguous: 3, notAsked: 3, notSent: 1} || r.slow != 5 {
		t.Errorf("said %v, %d above 1 ms", r.said, r.slow)
	}
	if len(r.before) != 4 || r.before[3] != 28*time.Millisecond || len(r.after) != 4 || r.after[3] != 25*time.Millisecond {
		t.Errorf("before %v, after %v", r.before, r.after)
	}
	if r.opened != 30*time.Millisecond || r.backIn != 40*time.Millisecond {
		t.Errorf("opened after %v, back in %v", r.opened, r.backIn)
	}
	if _, err := judge(all[:6], 100*time.Millisecond, 200*time.Millisecond); err == nil {
		t.Error("a stall after which Redis does not decide has figures")
	}
}
