// Package sizing says what limits need of a Redis: memory, calls, time of the
// server and network. It goes by a table of what a state and a call of each
// algorithm take, which its tests compare with a real server.
package sizing

import (
	"cmp"
	"math"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/redisstore"
)

// A Rule is limits that hold the same keys.
type Rule struct {
	Name   string
	Limits []stint.Limit
	Mode   string // "" is strict
	Keys   int64  // that are in use at once
	Tag    string // rules with the same have their keys in one slot
}

// A Load is what comes.
type Load struct {
	Rate      float64 // requests a second, each held by every rule
	Processes int     // that share the server
	Nodes     int     // masters; 1 is no cluster
}

// An Answer is what all rules need together.
type Answer struct {
	Rules []Need `json:"rules"`
	// Memory is what the keys take, Base what a server takes without any, and
	// MaxMemory what maxmemory should be, of all masters together: 85 % of it
	// are for keys.
	Memory    int64 `json:"memory"`
	Base      int64 `json:"base_memory"`
	MaxMemory int64 `json:"maxmemory"`
	// Calls is how many calls a second there are at most, one for each request and
	// node that its keys are on.
	Calls float64 `json:"calls_per_second"`
	// Alone and Together are the seconds of processor time a second of all masters:
	// where each request is a call, and where many share one.
	Alone    float64 `json:"cores_alone"`
	Together float64 `json:"cores_together"`
	// In and Out are bytes a second.
	In  float64 `json:"bytes_in_per_second"`
	Out float64 `json:"bytes_out_per_second"`
	// Connections is how many each master has of all processes.
	Connections int `json:"connections"`
	// Masters is how many the processor time needs, each at most half busy.
	Masters int `json:"masters"`
}

// A Need is that of one limit of a rule.
type Need struct {
	Rule  string `json:"rule"`
	Limit string `json:"limit"`
	Mode  string `json:"mode"`
	Keys  int64  `json:"keys"`
	// Each is the bytes of one key as it is used, Most those of one that is full,
	// with its place in the server's tables. Memory is Each of all keys.
	Each   int64 `json:"bytes_each"`
	Most   int64 `json:"bytes_each_full"`
	Memory int64 `json:"memory"`
	// Calls is calls a second, Alone and Together µs of the server for each.
	Calls    float64 `json:"calls_per_second"`
	Alone    float64 `json:"server_us_alone"`
	Together float64 `json:"server_us_together"`
}

// busiest is how busy a server should be at most: beyond that, waiting takes
// longer than deciding.
const busiest = 0.5

// forKeys is the part of maxmemory that redisstore fills with new keys.
const forKeys = 0.85

// Of returns what rules need under a load.
func Of(rules []Rule, load Load) *Answer {
	a := &Answer{Base: baseMemory * int64(max(load.Nodes, 1)), Connections: connections * max(load.Processes, 1)}
	asking, longest, calls, tags := 0.0, 0, 0.0, make(map[string]bool)
	for _, r := range rules {
		for i := range r.Limits {
			n, p := needOf(&r, r.Limits[i], load)
			a.Rules = append(a.Rules, n)
			a.Memory += n.Memory
			if n.Calls == 0 {
				continue
			}
			a.Alone += n.Calls * n.Alone / 1e6
			a.Together += n.Calls * n.Together / 1e6
			a.In += n.Calls * float64(p.sent)
			a.Out += n.Calls * float64(p.received)
			if cmp.Or(r.Mode, "strict") == "strict" {
				asking = max(asking, n.Calls)
				longest++
				tags[cmp.Or(r.Tag, " "+r.Name)] = true
			} else {
				calls += n.Calls
			}
		}
	}
	// Limits that are asked strictly share a call, and its head, on each node.
	if longest > 1 {
		shared := float64(longest - 1)
		a.In -= asking * shared * callHead
		a.Alone -= asking * shared * callAlone / 1e6
	}
	a.Calls = calls + asking*rounds(len(tags), load.Nodes)
	if more := rounds(len(tags), load.Nodes) - 1; more > 0 {
		a.Alone += asking * more * callAlone / 1e6
		a.Together += asking * more * callTogether / 1e6
		a.In += asking * more * callHead
	}
	a.MaxMemory = int64(math.Ceil(float64(a.Memory+a.Base) / forKeys))
	a.Masters = max(1, int(math.Ceil(a.Together/busiest)))
	return a
}

// rounds returns how many calls a request takes whose keys lie in different slots:
// one where these are all on one node, else a look and a charge at each.
func rounds(keys, nodes int) float64 {
	if nodes <= 1 || keys <= 1 {
		return 1
	}
	n, k := float64(nodes), float64(keys)
	one := math.Pow(1/n, k-1)
	touched := n * (1 - math.Pow(1-1/n, k)) // nodes, on average
	return max(1, one+2*(touched-one))
}

// needOf returns what one limit of a rule needs, and what its calls take.
func needOf(r *Rule, l stint.Limit, load Load) (Need, price) {
	n := Need{Rule: r.Name, Limit: l.String(), Mode: cmp.Or(r.Mode, "strict"), Keys: r.Keys}
	if n.Mode == redisstore.Share.String() { // asks no server
		return n, price{}
	}
	each := load.Rate / float64(max(r.Keys, 1)) // requests a second of a key
	charges := min(each*l.Period().Seconds(), float64(l.Count()))
	used, full := priceOf(l, int64(max(charges, 1))), priceOf(l, max(l.Count(), 1))
	key := keyBytes(r.Name, l)
	n.Each, n.Most = bytes(key, used.state, r.Keys), bytes(key, full.state, r.Keys)
	n.Calls = callsOf(n.Mode, r.Keys, load)
	if n.Mode == redisstore.Lease.String() || n.Mode == redisstore.Async.String() {
		n.Each, n.Most = n.Each+besides, n.Most+besides
	}
	n.Memory = n.Each * r.Keys
	n.Alone, n.Together = callAlone+used.server, callTogether+used.server
	return n, used
}

// callsOf returns the calls a second under a mode: leases last 50 ms, and pushes
// are sent every 100 ms, for each key that is in use in a process. A key that is
// asked for less often is decided strictly.
func callsOf(mode string, keys int64, load Load) float64 {
	perKey := map[string]float64{redisstore.Lease.String(): 20, redisstore.Async.String(): 10}[mode]
	if perKey == 0 {
		return load.Rate
	}
	return min(load.Rate, perKey*float64(keys)*float64(max(load.Processes, 1)))
}
