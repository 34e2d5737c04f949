package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stint-dev/stint/internal/wording"
)

// A Cliff shows which clients are denied as a limit tightens, so that a person can choose.
type Cliff struct {
	// Steps go from loose to tight.
	Steps []Step `json:"steps"`
	// Edge is how many clients stand apart from the rest, 0 if none do: a limit that denies them
	// may be much tighter than one that does not.
	Edge int64 `json:"edge"`
	// Advice says so where the choice stops short of the edge.
	Advice string `json:"advice,omitempty"`
}

// A Step is the tightest limit that denies at most a certain number of clients.
type Step struct {
	Limit string `json:"limit"`
	// Minute is the most that passes in any minute.
	Minute int64 `json:"most_per_minute"`
	// Clients is how many clients it denies something, and Falls how many of them the step before
	// does not.
	Clients int64 `json:"clients_denied"`
	Falls   int64 `json:"falls"`
	// Who names the first of the clients that fall at this step, the heaviest first, and Requests
	// is what all of them sent.
	Who      []string `json:"who"`
	Requests int64    `json:"requests"`
	// Chosen marks the step of the choice, without its margin, and Edge the last step before the
	// cliff.
	Chosen bool `json:"chosen,omitempty"`
	Edge   bool `json:"edge,omitempty"`
}

// A cliff is the last step at which the limit tightens by edgeFactor for one more client, within
// the fraction of clients that may stand apart. A clear cliff is steeper, so that a proposal may
// choose it.
const (
	edgeFactor  = 1.5
	clearFactor = 5
	edgePart    = 0.05
	fewestEdge  = 3
	mostEdge    = 2000
	mostWho     = 3
)

// allowance returns the tightest limit that denies at most k clients, with its burst rounded by
// round. It returns false if there are no more than k clients.
func (c *curve) allowance(k int, round func(int64) int64) (best Candidate, ok bool) {
	var all []Candidate
	for i, r := range rates {
		ranked := c.ranked(i)
		if k >= len(ranked) {
			return best, false
		}
		all = append(all, candidate(r, round(need(ranked[k]))))
	}
	return tightest(all), true
}

// edge returns how many clients, at most deepest, stand apart from the rest by a factor.
func (c *curve) edge(factor float64, deepest int) (edge int64) {
	last := math.Inf(1)
	for k := range min(deepest, mostEdge, c.n-1) + 1 {
		one, ok := c.allowance(k, func(n int64) int64 { return n })
		if !ok {
			break
		}
		minute := float64(one.Minute)
		if k > 0 && last >= factor*minute {
			edge = int64(k)
		}
		last = minute
	}
	return edge
}

// apart returns how many clients stand clearly apart from the rest, if they are few of all.
func (c *curve) apart() int64 { return c.edge(clearFactor, max(int(edgePart*float64(c.n)), 1)) }

// mostApartPart is the fraction of clients within which a clear cliff is looked for. Above edgePart
// they are too many to leave out without a question, as with a botnet.
const mostApartPart = 1. / 3

// crowd returns how many clients stand clearly apart if they are too many for apart, and the limit
// without them. It returns 0 if none do.
func (c *curve) crowd() (n int64, without Candidate) {
	if n = c.edge(clearFactor, int(mostApartPart*float64(c.n))); n <= max(int64(edgePart*float64(c.n)), 1) {
		return 0, without
	}
	without, _ = c.allowance(int(n), roundUp)
	return n, without
}

// cliff finds the steps and the edge. The choice denies at most the given number of clients.
func (c *curve) cliff(r *reading, choice *Choice, most int) *Cliff {
	n := c.n
	all := &Cliff{Steps: []Step{}, Edge: c.edge(edgeFactor, max(int(edgePart*float64(n)), fewestEdge))}
	fallen := make(map[uint32]bool)
	at := int64(-1)
	for _, k := range all.worth(n, most) {
		one, ok := c.allowance(k, roundUp)
		if !ok {
			break
		}
		step := Step{Limit: one.text(), Minute: one.Minute, Who: []string{}, Edge: all.Edge > 0 && int64(k) == all.Edge}
		rate := slices.Index(rates[:], one.rate)
		ids := c.above(rate, one.Burst)
		if step.Clients = int64(len(ids)); step.Clients <= at && !step.Edge || len(all.Steps) > 0 && all.Steps[len(all.Steps)-1].Limit == step.Limit {
			if step.Edge && len(all.Steps) > 0 {
				all.Steps[len(all.Steps)-1].Edge = true
			}
			continue
		}
		at = step.Clients
		step.name(r, ids, fallen)
		step.Chosen = choice != nil && choice.Tightest == step.Limit
		all.Steps = append(all.Steps, step)
	}
	all.advise(choice)
	return all
}

// name fills in who falls at a step.
func (s *Step) name(r *reading, ids []uint32, fallen map[uint32]bool) {
	var now []uint32
	for _, id := range ids {
		if !fallen[id] {
			fallen[id], now = true, append(now, id)
			s.Requests += int64(r.sent[id])
		}
	}
	s.Falls = int64(len(now))
	slices.SortStableFunc(now, func(a, b uint32) int { return cmp.Compare(r.sent[b], r.sent[a]) })
	for _, id := range now[:min(len(now), mostWho)] {
		s.Who = append(s.Who, r.name(id))
	}
}

// worth returns the numbers of denied clients that get a step: the first few one by one, then
// further apart, those around the edge, and the chosen one.
func (all *Cliff) worth(n, most int) (ks []int) {
	for k := 0; k < n && len(ks) < 40; {
		ks = append(ks, k)
		switch {
		case k < 3:
			k++
		default:
			k += max(k/2, 1)
		}
	}
	if e := int(all.Edge); e > 0 {
		ks = append(ks, e-1, e)
	}
	if most > 0 && most < n {
		ks = append(ks, most)
	}
	slices.Sort(ks)
	ks = slices.Compact(ks)
	for i, k := range ks { // a limit that denies a third of all clients is no use
		if k > 3 && k*3 > n {
			return ks[:i]
		}
	}
	return ks
}

// advise fills in Advice if the choice stops short of the edge.
func (all *Cliff) advise(choice *Choice) {
	i := slices.IndexFunc(all.Steps, func(s Step) bool { return s.Edge })
	if i < 0 || choice == nil {
		return
	}
	edge := &all.Steps[i]
	tight := slices.IndexFunc(choice.Candidates, func(k Candidate) bool { return k.text() == choice.Tightest })
	if tight < 0 || choice.Candidates[tight].Minute <= edge.Minute {
		return
	}
	after := ""
	if i+1 < len(all.Steps) {
		after = fmt.Sprintf("; at the next step, %s, %s fall", all.Steps[i+1].Limit, wording.Count(all.Steps[i+1].Clients, "client"))
	}
	apart := "1 client stands apart from the rest, and %s would deny it alone"
	if edge.Clients != 1 {
		apart = wording.Grouped(edge.Clients) + " clients stand apart from the rest, and %s would deny these alone"
	}
	all.Advice = fmt.Sprintf("%s stops short of the cliff: "+apart+"%s", choice.Target, edge.Limit, after)
}

// Named returns the names of a few clients that fall at the step.
func (s *Step) Named() string {
	text := strings.Join(s.Who, " ")
	if s.Falls > int64(len(s.Who)) {
		text = wording.Grouped(s.Falls) + ", such as " + text
	}
	return text
}
