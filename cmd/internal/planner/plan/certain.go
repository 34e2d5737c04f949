package plan

import (
	"context"
	"fmt"
	"strings"
)

// A Certainty says how much a choice rests on, and how far it would be another
// with other clients or on other days.
type Certainty struct {
	Requests int64    `json:"requests"`
	Clients  int64    `json:"clients"`
	Span     Duration `json:"span"`
	// Days is how many days of the zone the log touches, and Busy on how many
	// of them there was enough to choose from.
	Days int `json:"days"`
	Busy int `json:"busy_days"`
	// Low and High are the choices between which nine of ten lie when the
	// clients are drawn anew from those that there were, and Same the part of
	// these draws that choose the same.
	Low   string  `json:"low,omitempty"`
	High  string  `json:"high,omitempty"`
	Same  float64 `json:"same"`
	Draws int     `json:"draws"`
	// ByDay is what each day says alone.
	ByDay []Day `json:"by_day"`
	// Words say the same for people.
	Words []string `json:"words"`
}

// certainty says how sure a choice is; all is what each day says.
func (c *chooser) certainty(ctx context.Context, r *reading, demand *curve, candidates []Candidate, all []Day) (*Certainty, error) {
	to := &Certainty{Requests: r.requests, Clients: r.counted(), Span: Duration(r.last - r.first), ByDay: append([]Day{}, all...), Days: len(all)}
	var anew []Candidate
	if c.target.Requests {
		var err error
		if anew, err = c.drawRequests(ctx, r, demand, candidates); err != nil {
			return nil, err
		}
	} else {
		anew = c.drawClients(r, demand)
	}
	to.spread(anew, tightest(candidates))
	for i := range all {
		if all[i].busy() {
			to.Busy++
		}
	}
	to.Words = to.words()
	return to, ctx.Err()
}

// words says how sure it is.
func (s *Certainty) words() (all []string) {
	all = append(all, fmt.Sprintf("it rests on %s of %s in %s: %s, %s of them busy", plural(s.Requests, "request"), plural(s.Clients, "client"), s.Span, plural(int64(s.Days), "day"), number(int64(s.Busy))))
	switch s.Low {
	case s.High:
		all = append(all, fmt.Sprintf("with the clients drawn anew %d times from these, nine of ten choices are %s as well", s.Draws, s.Low))
	default:
		all = append(all, fmt.Sprintf("with the clients drawn anew %d times from these, nine of ten choices lie between %s and %s; %.0f%% are this one", s.Draws, s.Low, s.High, 100*s.Same))
	}
	var tight, loose, worst *Day
	for i := range s.ByDay {
		d := &s.ByDay[i]
		if d.Tightest != "" && (tight == nil || d.minute < tight.minute) {
			tight = d
		}
		if d.Tightest != "" && (loose == nil || d.minute > loose.minute) {
			loose = d
		}
		if worst == nil || d.ClientsDenied > worst.ClientsDenied {
			worst = d
		}
	}
	switch {
	case s.Busy < 2:
		all = append(all, "how days differ cannot be seen: it takes two that are busy")
	case tight != nil && tight.Tightest == loose.Tightest:
		all = append(all, fmt.Sprintf("each busy day alone says %s", tight.Tightest))
	case tight != nil:
		all = append(all, fmt.Sprintf("by single days it would be from %s (%s) to %s (%s)", tight.Tightest, tight.From, loose.Tightest, loose.From))
	}
	if s.Days > 1 && worst != nil && worst.ClientsDenied > 0 {
		all = append(all, fmt.Sprintf("most clients would be denied on %s: %s of %s", worst.From, number(worst.ClientsDenied), number(worst.Clients)))
	}
	return all
}

func (s *Certainty) text(b *strings.Builder) {
	for _, line := range s.Words {
		wrap(b, "  - ", line)
	}
}
