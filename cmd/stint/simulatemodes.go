package main

import (
	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/redisstore"

	"github.com/stint-dev/stint/planner/luaserver"
	"github.com/stint-dev/stint/planner/nodes"
	"github.com/stint-dev/stint/planner/trial"
)

// mostNodes bounds what one simulation holds in memory.
const mostNodes = 1000

// operationModes are for operations: a line is answered by what stands, never by
// a denial that is remembered.
func operationModes(n int) redisstore.Modes { return redisstore.Modes{Nodes: n, DenialCache: -1} }

// modeOf returns the mode of a name that was given, strict if none was.
func modeOf(name string) redisstore.Mode {
	mode, err := redisstore.ParseMode(name)
	if err != nil {
		return redisstore.Strict
	}
	return mode
}

// compareModes plays arrivals to the limits as several processes hold them:
// strictly, and in --mode or in all.
func (c *simulateCmd) compareModes(e *env, limits []stint.Limit, phases []trial.Phase) error {
	modes := []string{"strict", "lease", "async", "share"}
	switch c.Mode {
	case "":
	case "strict":
		modes = modes[:1]
	default:
		modes = []string{"strict", c.Mode}
	}
	ways := make([]trial.Way, len(modes))
	for i, mode := range modes {
		ways[i] = trial.Way{Mode: mode, Nodes: c.Nodes, Open: func(now func() int64) (stint.Store, func() int64, error) {
			if mode == "strict" { // else it is held in memory, where there is nothing to ask
				return c.byScript(mode, now, redisstore.Modes{Nodes: c.Nodes})
			}
			return c.inProcess(mode, now, redisstore.Modes{Nodes: c.Nodes})
		}}
	}
	arrivals, end := trial.Arrivals(phases)
	comparison, err := trial.CompareModes(limits, ways, arrivals, end, c.Stretch)
	return c.show(e, "--limit", comparison, err)
}

// inProcess returns a store that needs no Redis, and what says how often nodes
// have asked the one that they would share. In mode strict that is one in memory,
// whatever the nodes: it answers alike, to the nanosecond.
func (c *simulateCmd) inProcess(mode string, now func() int64, modes redisstore.Modes) (stint.Store, func() int64, error) {
	switch modeOf(mode) {
	case redisstore.Strict:
		return memstore.New(memstore.Options{Now: now}), never, nil
	case redisstore.Share:
		each := make([]stint.Store, c.Nodes)
		for i := range each {
			each[i] = memstore.New(memstore.Options{Now: now})
		}
		return nodes.New(each, func(l stint.Limit) stint.Limit { return fallback.Share(l, int64(c.Nodes)) }), never, nil
	}
	return c.byScript(mode, now, modes)
}

func never() int64 { return 0 }

// byScript returns a store of nodes that ask a server in this process.
func (c *simulateCmd) byScript(mode string, now func() int64, modes redisstore.Modes) (stint.Store, func() int64, error) {
	server := luaserver.New()
	each := make([]stint.Store, c.Nodes)
	for i := range each {
		store, err := redisstore.New(redisstore.Options{Driver: server, Now: now, Timeout: simulateTimeout, Modes: modes})
		if err != nil {
			return nil, nil, err
		}
		each[i] = store.Mode(modeOf(mode))
	}
	return nodes.New(each, nil), server.Calls, nil
}
