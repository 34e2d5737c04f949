package plan

import (
	"context"
	"errors"
	"strings"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/simulate"
)

// A ruling is a rules file, decided by its policy on a store whose clock is
// that of the log: a sink. It is slower than a replay of limits alone.
type ruling struct {
	reading *reading
	policy  *policy.Policy
	store   *memstore.Store
	clock   simulate.Clock
	result  policy.Result

	layers  map[*policy.RuleLimit]*layer
	order   []*layer
	all     *replay // what the rules deny together
	refused int64   // requests that are at fault
	matched int64
	err     error
}

// A layer is one limit of a rule, with keys of its own.
type layer struct {
	*replay
	rule    *policy.RuleLimit
	clients *clients
	sent    []int64
}

func newRuling(o *Options, r *reading) (*ruling, error) {
	g := &ruling{reading: r, layers: make(map[*policy.RuleLimit]*layer), all: tally("all rules")}
	g.store = memstore.New(memstore.Options{Now: g.clock.Now, MaxKeys: 1 << 26})
	var err error
	if g.policy, err = policy.New(g.store, o.Rules, policy.Options{}); err != nil {
		return nil, errors.Join(err, g.store.Close())
	}
	for _, name := range o.Rules.Names() {
		for _, l := range o.Rules.Limits(name) {
			g.layer(l)
		}
	}
	return g, nil
}

// tally is a replay that others decide.
func tally(text string) *replay {
	return &replay{text: text, denied: make([]refused, 1)}
}

func (g *ruling) layer(l *policy.RuleLimit) *layer {
	if one, ok := g.layers[l]; ok {
		return one
	}
	one := &layer{tally(l.Text), l, newClients(), nil}
	g.layers[l] = one
	g.order = append(g.order, one)
	return one
}

// count notes what others decided.
func (r *replay) count(e *event, ok bool) {
	r.total++
	r.noteDenied(e, ok)
}

func (g *ruling) add(events []event) {
	line := attributes{names: g.reading.extraction.attributes}
	for i := range events {
		e := &events[i]
		g.clock.Advance(e.at)
		line.values = g.reading.extraction.values(line.values[:0], g.reading.clients.key(e.id))
		err := g.policy.Decide(context.Background(), &line, e.cost, &g.result)
		switch {
		case errors.Is(err, policy.ErrRequest) || errors.Is(err, stint.ErrCost):
			g.refused++
			continue
		case err != nil:
			g.err = err
			return
		}
		if g.result.Matched || g.result.ShadowDenied || len(g.result.Rules) > 0 {
			g.matched++
		}
		g.all.count(e, g.result.Decision.Allowed)
		for k := range g.result.Rules {
			g.note(e, k)
		}
	}
}

// note records what one layer said of a request.
func (g *ruling) note(e *event, k int) {
	one := g.layer(g.result.Rules[k].RuleLimit)
	key := []byte(g.result.Key(k))
	id, fresh := one.clients.number(hashKey(key), key)
	if fresh {
		one.sent = append(one.sent, 0)
	}
	one.sent[id]++
	one.count(&event{at: e.at, cost: g.result.Rules[k].Cost, id: id}, !g.result.Rules[k].Denied)
}

// values takes a key of all attributes apart, in their order.
func (q *extraction) values(to [][]byte, key []byte) [][]byte {
	to = append(to, make([][]byte, len(q.attributes))...)
	for i, part := range q.parts(key) {
		if part != "" {
			to[q.key[i]] = []byte(part)
		}
	}
	return to
}

// Ruled is what rules would have done together.
type Ruled struct {
	// Matched is how many requests any rule held to a limit.
	Matched int64 `json:"matched"`
	// Refused is how many were at fault, such as a path that servers read in
	// different ways.
	Refused       int64 `json:"refused"`
	Denied        int64 `json:"denied"`
	ClientsDenied int64 `json:"clients_denied"`
}

// report says what each limit of the rules did, those in shadow as if they
// were not.
func (g *ruling) report(who reportData) (all []Result, total Ruled, err error) {
	if g.err != nil {
		return nil, total, g.err
	}
	for _, l := range g.order {
		who.clients = int64(l.clients.len())
		who.name = func(id uint32) string { return plainKey(l.clients.key(id)) }
		who.sent = func(id uint32) int64 { return l.sent[id] }
		res := l.report(who)
		res.Rule, res.Key = l.rule.Label, "by the rule"
		all = append(all, res)
	}
	total = Ruled{g.matched, g.refused, g.all.sum, int64(len(g.all.denied) - 1)}
	if n := g.store.Stats().Overflowed; n > 0 {
		return all, total, errors.New("more keys than fit into memory: the counts are not exact")
	}
	return all, total, nil
}

// testify adds to the denied what they did, of those requests that their rule
// holds. What is in a client's key here says which rules hold it and under which
// keys: so each is decided once more, at no cost.
func (g *ruling) testify(ctx context.Context, w *run, results []Result) error {
	places, all := make(map[*layer]map[string]int), []*Denied{}
	for i, l := range g.order {
		places[l] = make(map[string]int)
		for j := range results[i].Top {
			if d := &results[i].Top[j]; len(all) < mostNamed {
				places[l][string(l.clients.key(d.id))] = len(all)
				all = append(all, d)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	aside := memstore.New(memstore.Options{Now: g.clock.Now, MaxKeys: 1 << 16})
	defer aside.Close()
	p, err := policy.New(aside, w.options.Rules, policy.Options{})
	if err != nil {
		return err
	}
	index := make(map[string][]int)
	line := attributes{names: w.extraction.attributes}
	for id := range uint32(w.clients.len()) {
		key := w.clients.key(id)
		line.values = w.extraction.values(line.values[:0], key)
		if p.Decide(ctx, &line, 0, &g.result) != nil {
			continue // at fault: no rule has seen it
		}
		for k := range g.result.Rules {
			if at, ok := places[g.layers[g.result.Rules[k].RuleLimit]][g.result.Key(k)]; ok {
				index[string(key)] = append(index[string(key)], at)
			}
		}
	}
	found, err := w.lookFor(ctx, index, len(all), nil)
	if err != nil {
		return err
	}
	for i, d := range all {
		d.Evidence = found[i].evidence(w.options, w.requests+w.excluded)
	}
	return nil
}

func plainKey(key []byte) string {
	if len(key) == 0 {
		return missing
	}
	return strings.ToValidUTF8(string(key), "?")
}
