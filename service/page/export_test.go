package page

import (
	"time"

	"github.com/stint-dev/stint/service/observe"
)

// A Span is a span, for tests.
type Span struct{ s *span }

func NewHour() *Span { return &Span{newSpan(hourLong)} }

func NewDay() *Span { return &Span{newSpan(dayLong)} }

func (s *Span) Add(now time.Time, r observe.Requests, said map[string]observe.RuleCounts) {
	s.s.add(now, r, said)
}

func (s *Span) History(now time.Time, n int) *History { return s.s.history(now, n) }

func (s *Span) Held() int { return len(s.s.rules) }

func (s *Span) Rule(now time.Time, name string) RuleHistory { return s.s.rule(now, name) }
