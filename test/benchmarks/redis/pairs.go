package redis

import (
	"context"
	"fmt"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"

	"github.com/stint-dev/stint/test/benchmarks/report"
)

// Names of what is asked in this chapter.
const (
	oneLayer     = "one limit"
	pairOneNode  = "two limits, one node"
	pairTwoNodes = "two limits, two nodes"
)

// pairs measures requests of two limits on a cluster, by address and by account: what a
// decision takes of the servers. TestNodes of redisstore counts its calls.
func (f *figures) pairs(c *redisCluster, open opening) error {
	addresses, near, far, err := c.partners()
	if err != nil {
		return err
	}
	store, err := open(redisstore.Options{Client: c.client})
	if err != nil {
		return err
	}
	address, err := store.Bind("address", stint.PerSecond(1).WithBurst(plenty))
	if err != nil {
		return err
	}
	account, err := store.Bind("account", stint.PerMinute(50).WithBurst(plenty))
	if err != nil {
		return err
	}
	ask := func(accounts []string) func(context.Context, string) error {
		return func(ctx context.Context, key string) error {
			i := indexOf(key)
			layers := []stint.Layer{{Bound: address, Key: addresses[i]}}
			if accounts != nil {
				layers = append(layers, stint.Layer{Bound: account, Key: accounts[i]})
			}
			d, err := store.Decide(ctx, meter.OpTake, layers, 1)
			return admitted(d.Allowed, err)
		}
	}
	var all []sided
	for _, one := range []struct {
		name     string
		accounts []string
	}{{oneLayer, nil}, {pairOneNode, near}, {pairTwoNodes, far}} {
		all = append(all, sided{contender{name: one.name, call: ask(one.accounts), made: callsOf(store)}, c})
	}
	alone, err := f.turns(all, 1)
	if err != nil {
		return err
	}
	many, err := f.turns(all, clusterCallers)
	if err != nil {
		return err
	}
	rows := [][]string{{"by address and by account, go-redis", "1 caller: servers, µs each", fmt.Sprintf("%d callers: 1/s", clusterCallers), "decisions a call", "servers, µs each"}}
	for i, one := range all {
		rows = append(rows, []string{one.name, report.Number(report.Median(alone[i].cpu)),
			fmt.Sprintf("%.0f", report.Median(many[i].pace)), many[i].decisionsEach(), report.Number(report.Median(many[i].cpu))})
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
