package page

import (
	"time"

	"github.com/stint-dev/stint/service/observe"
)

// Hour is the last hour, for tests.
type Hour struct{ h hour }

func (h *Hour) Add(now time.Time, r observe.Requests, said map[string]observe.RuleCounts) {
	h.h.add(now, r, said)
}

func (h *Hour) History(now time.Time, n int) *History { return h.h.history(now, n) }

func (h *Hour) Held() int { return len(h.h.rules) }

func (h *Hour) Rule(now time.Time, name string) RuleHistory { return h.h.rule(now, name) }
