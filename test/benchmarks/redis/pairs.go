package redis

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/redisstore/goredis"

	"github.com/stint-dev/stint/test/benchmarks/report"
)

// Names of what is asked in this chapter.
const (
	oneLayer     = "one limit"
	pairOneNode  = "two limits, one node"
	pairTwoNodes = "two limits, two nodes"
	pairDenied   = "two limits, two nodes, denied"
	bySlots      = ", a call for each slot"
)

// A pairing asks for two limits, by address and by account.
type pairing struct {
	store                       *redisstore.Store
	driver                      *counting
	address, account, exhausted stint.Bound
	addresses                   []string
	near, far                   []string // accounts: on the node of the address of the same place, and on another
}

// pairs measures requests of two limits on a cluster: what a decision takes of the
// servers, in how many calls and rounds, and how much it writes.
func (f *figures) pairs(c *redisCluster, open opening) error {
	addresses, near, far, err := c.partners()
	if err != nil {
		return err
	}
	var asked []pairAsked
	for _, slotwise := range []bool{false, true} {
		p, err := newPairing(c, open, slotwise)
		if err != nil {
			return err
		}
		p.addresses, p.near, p.far = addresses, near, far
		more, err := p.asked(c, slotwise)
		if err != nil {
			return err
		}
		asked = append(asked, more...)
	}
	all := make([]sided, len(asked))
	for i := range asked {
		all[i] = sided{asked[i].contender, c}
	}
	alone, err := f.turns(all, 1)
	if err != nil {
		return err
	}
	many, err := f.turns(all, clusterCallers)
	if err != nil {
		return err
	}
	rows := [][]string{{"by address and by account, go-redis", "calls", "rounds", "changes", "1 caller: servers, µs each", fmt.Sprintf("%d callers: 1/s", clusterCallers), "decisions a call", "servers, µs each"}}
	for i, one := range asked {
		rows = append(rows, []string{one.name, report.Number(one.calls), report.Number(one.rounds), report.Number(one.changes), report.Number(report.Median(alone[i].cpu)),
			fmt.Sprintf("%.0f", report.Median(many[i].pace)), many[i].decisionsEach(), report.Number(report.Median(many[i].cpu))})
		switch one.name {
		case pairTwoNodes:
			f.AtMost(2, one.rounds, "", "cluster, two limits on two nodes: rounds")
		case pairDenied:
			f.AtMost(2, one.calls, "", "cluster, the same, denied: calls")
			f.AtMost(1, one.rounds, "", "cluster, the same, denied: rounds")
			f.AtMost(0, one.changes, "", "cluster, the same, denied: changes")
		}
	}
	fmt.Fprintln(f.Out)
	f.Table(rows)
	f.AtMost(1.3, report.Ratio(of(alone, pairOneNode).cpu, of(alone, oneLayer).cpu), " ×", "cluster, two limits on one node, beside one: processor time, 1 caller")
	f.AtMost(1.3, report.Ratio(of(many, pairOneNode).cpu, of(many, oneLayer).cpu), " ×", "cluster, the same, %d callers", clusterCallers)
	return nil
}

// partners returns addresses and, for each, an account on the same master and one
// on another.
func (c *redisCluster) partners() (addresses, near, far []string, err error) {
	accounts := make([]string, keys)
	for i := range keys {
		addresses, accounts[i] = append(addresses, fmt.Sprint("a", i)), fmt.Sprint("u", i)
	}
	of, err := c.masterOf(addresses)
	if err != nil {
		return nil, nil, nil, err
	}
	have, err := c.masterOf(accounts)
	if err != nil {
		return nil, nil, nil, err
	}
	var on [masters][]string
	for i, account := range accounts {
		on[have[i]] = append(on[have[i]], account)
	}
	for i, m := range of {
		other := on[(m+1)%masters]
		near, far = append(near, on[m][i%len(on[m])]), append(far, other[i%len(other)])
	}
	return addresses, near, far, nil
}

func newPairing(c *redisCluster, open opening, slotwise bool) (p *pairing, err error) {
	driver := goredis.New(c.goRedis)
	p = &pairing{driver: &counting{Driver: driver}}
	o := redisstore.Options{Driver: p.driver}
	if !slotwise {
		o.Driver = countingNodes{p.driver, driver.(redisstore.Topology)}
	}
	if p.store, err = open(o); err != nil {
		return nil, err
	}
	for _, one := range []struct {
		to         *stint.Bound
		name, text string
	}{{&p.address, "address", "1/s burst 1000000"}, {&p.account, "account", "50/1m burst 1000000"}, {&p.exhausted, "exhausted", "1/1h"}} {
		limit, err := stint.Parse(one.text)
		if err != nil {
			return nil, err
		}
		if *one.to, err = p.store.Bind(one.name, limit); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// A pairAsked is what is asked, and what a request of it takes when it comes alone.
type pairAsked struct {
	contender
	calls, rounds, changes float64
}

func (p *pairing) asked(c *redisCluster, slotwise bool) (all []pairAsked, err error) {
	add := func(name string, bound stint.Bound, accounts []string, allowed bool) {
		if slotwise {
			name += bySlots
		}
		all = append(all, pairAsked{contender: contender{name: name, call: p.call(bound, accounts, allowed), made: callsOf(p.store)}})
	}
	if !slotwise {
		add(oneLayer, nil, nil, true)
	}
	add(pairOneNode, p.account, p.near, true)
	add(pairTwoNodes, p.account, p.far, true)
	for i := range keys { // the limit is used up
		if _, err := p.store.Decide(context.Background(), meter.OpTake, []stint.Layer{{Bound: p.exhausted, Key: p.far[i]}}, 1); err != nil {
			return nil, err
		}
	}
	add(pairDenied, p.exhausted, p.far, false)
	for i := range all {
		if err := all[i].count(p.driver, c); err != nil {
			return nil, fmt.Errorf("%s: %w", all[i].name, err)
		}
	}
	return all, nil
}

// call returns what asks for both limits, or for the first alone without accounts.
func (p *pairing) call(bound stint.Bound, accounts []string, allowed bool) func(context.Context, string) error {
	return func(ctx context.Context, key string) error {
		i := indexOf(key)
		layers := []stint.Layer{{Bound: p.address, Key: p.addresses[i]}}
		if accounts != nil {
			layers = append(layers, stint.Layer{Bound: bound, Key: accounts[i]})
		}
		d, err := p.store.Decide(ctx, meter.OpTake, layers, 1)
		return admitted(d.Allowed == allowed, err)
	}
}

// count notes what requests take that come one after the other.
func (a *pairAsked) count(driver *counting, c *redisCluster) error {
	const many = 20
	if err := a.call(context.Background(), keyOf(0)); err != nil { // loads the script
		return err
	}
	before, err := c.changes()
	if err != nil {
		return err
	}
	driver.begin()
	for i := range many {
		if err := a.call(context.Background(), keyOf(i)); err != nil {
			return err
		}
	}
	calls, rounds := driver.end()
	after, err := c.changes()
	a.calls, a.rounds, a.changes = float64(calls)/many, float64(rounds)/many, float64(after-before)/many
	return err
}

// A counting driver counts calls between begin and end, and rounds of them: calls of
// one round are on their way together. It does not say which node serves what, so
// that a call reaches one slot.
type counting struct {
	redisstore.Driver

	mu                      sync.Mutex
	counts                  bool
	inFlight, calls, rounds int
}

// A countingNodes driver does say it.
type countingNodes struct {
	*counting
	redisstore.Topology
}

func (c *counting) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts, c.calls, c.rounds = true, 0, 0
}

func (c *counting) end() (calls, rounds int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts = false
	return c.calls, c.rounds
}

// EvalSHA implements [redisstore.Driver]. A call that is counted takes long enough
// for all of its round to begin.
func (c *counting) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	c.mu.Lock()
	counts := c.counts
	if counts {
		c.calls++
		if c.inFlight++; c.inFlight == 1 {
			c.rounds++
		}
	}
	c.mu.Unlock()
	if !counts {
		return c.Driver.EvalSHA(ctx, sha, keys, args)
	}
	time.Sleep(2 * time.Millisecond)
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.inFlight--
	}()
	return c.Driver.EvalSHA(ctx, sha, keys, args)
}
