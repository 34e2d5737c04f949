package page_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stint-dev/stint/policy"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/page"
)

// BenchmarkHour is what the server does every two seconds, with ten thousand rules
// that all said something.
func BenchmarkHour(b *testing.B) {
	o := observe.New(observe.Options{})
	defer o.Close()
	r := policy.Result{Rules: make([]policy.RuleResult, 1)}
	r.Decision.Allowed = true
	for i := range 10_000 {
		r.Rules[0].RuleLimit = &policy.RuleLimit{Rule: fmt.Sprint("rule-", i)}
		o.Decided("http", &r, observe.Request{Took: time.Microsecond})
	}
	var h page.Hour
	at := time.Now()
	for b.Loop() {
		at = at.Add(2 * time.Second)
		h.Add(at, o.Requests(), o.CountsByRule())
	}
}
