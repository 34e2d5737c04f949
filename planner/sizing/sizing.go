// Package sizing says what limits need of a Redis: memory, calls, time of the
// server and network. What a state and a call hold it does not reckon: it runs the
// store's own script, in this process, and measures. What Redis adds to that it
// knows by rules that its tests hold to a real server.
package sizing

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"
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
func Of(rules []Rule, load Load) (*Answer, error) {
	a := &Answer{Base: baseMemory * int64(max(load.Nodes, 1)), Connections: connections * max(load.Processes, 1)}
	var wire exchange // of the rules that are decided in one call
	asking, longest, calls, tags := 0.0, 0, 0.0, make(map[string]bool)
	for _, r := range rules {
		for i := range r.Limits {
			n, x, err := needOf(&r, r.Limits[i], load)
			if err != nil {
				return nil, fmt.Errorf("rule %s: %w", r.Name, err)
			}
			a.Rules = append(a.Rules, n)
			a.Memory += n.Memory
			if n.Calls == 0 {
				continue
			}
			a.Alone += n.Calls * n.Alone / 1e6
			a.Together += n.Calls * n.Together / 1e6
			a.In += n.Calls * float64(x.sent)
			a.Out += n.Calls * float64(x.received)
			if cmp.Or(r.Mode, "strict") == "strict" {
				asking, wire = max(asking, n.Calls), x
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
		a.In -= asking * shared * float64(wire.head)
		a.Alone -= asking * shared * callAlone / 1e6
	}
	a.Calls = calls + asking*rounds(len(tags), load.Nodes)
	if more := rounds(len(tags), load.Nodes) - 1; more > 0 {
		a.Alone += asking * more * callAlone / 1e6
		a.Together += asking * more * callTogether / 1e6
		a.In += asking * more * float64(wire.head)
	}
	a.MaxMemory = int64(math.Ceil(float64(a.Memory+a.Base) / forKeys))
	a.Masters = max(1, int(math.Ceil(a.Together/busiest)))
	return a, nil
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

// needOf returns what one limit of a rule needs.
func needOf(r *Rule, l stint.Limit, load Load) (Need, exchange, error) {
	n := Need{Rule: r.Name, Limit: l.String(), Mode: cmp.Or(r.Mode, "strict"), Keys: r.Keys}
	if n.Mode == redisstore.Share.String() { // asks no server
		return n, exchange{}, nil
	}
	each := load.Rate / float64(max(r.Keys, 1)) // requests a second of a key
	charges := min(each*l.Period().Seconds(), float64(l.Count()))
	used, x, err := measure(l, int64(max(charges, 1)))
	if err != nil {
		return n, x, err
	}
	full, _, err := measure(l, l.Count())
	if err != nil {
		return n, x, err
	}
	n.Each, n.Most = used.bytes(r.Keys), full.bytes(r.Keys)
	n.Calls = callsOf(n.Mode, r.Keys, load)
	if n.Mode == redisstore.Lease.String() || n.Mode == redisstore.Async.String() {
		n.Each, n.Most = n.Each+besides, n.Most+besides
	}
	n.Memory = n.Each * r.Keys
	n.Alone, n.Together = serverTime(l, int64(charges))
	return n, x, nil
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

// measure runs the script on one key, charged so often, evenly over a period.
func measure(l stint.Limit, charges int64) (entry, exchange, error) {
	const some = 256 // beyond which more of the same are reckoned
	if charges <= some || l.Algorithm() != slidingLog {
		return run(l, min(charges, some))
	}
	half, _, err := run(l, some/2)
	if err != nil {
		return half, exchange{}, err
	}
	e, x, err := run(l, some)
	e.value += int(float64(e.value-half.value) / (some / 2) * float64(charges-some))
	return e, x, err
}

func run(l stint.Limit, charges int64) (entry, exchange, error) {
	server := newScale()
	now := int64(1_800_000_000_000_000_000)
	store, err := redisstore.New(redisstore.Options{Driver: server, Tag: policy.Tag, Now: func() int64 { return now }, Timeout: time.Minute, MaxLog: max(l.Count(), 10_000)})
	if err != nil {
		return entry{}, exchange{}, err
	}
	defer store.Close()
	bound, err := store.Bind("rule", l)
	if err != nil {
		return entry{}, exchange{}, err
	}
	pause := int64(l.Period()) / max(charges, 1)
	for range charges {
		if _, err := bound.Allow(server.ctx, sampleKey, 1); err != nil {
			return entry{}, exchange{}, err
		}
		now += pause
	}
	return server.entry(), server.last, nil
}

// sampleKey is as long as most keys of clients are: an address.
const sampleKey = "192.0.2.133"
