package rulesworker

import (
	"context"
	"time"

	"github.com/stint-dev/stint/internal/aside"
	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/rules/rulesredis"
)

const (
	// asideEvery is how often the rows of nodes, and the clocks, are read.
	asideEvery = 5 * time.Second
	// goneAfter is how long a node may be silent before its row is removed.
	goneAfter = 10 * time.Minute
)

// A relay is what is known of the nodes that read from a target.
type relay struct {
	beats map[string]string    // the last beat of each node
	seen  map[string]time.Time // when the beat last changed
}

// relayNodes copies the reports of nodes, and this worker's own, to the database, and the
// database's clock to the target, until ctx ends.
func (w *Worker) relayNodes(ctx context.Context) {
	server, _ := w.o.To.(redis)
	for ctx.Err() == nil {
		if server.Server != nil {
			if ahead, doubt, err := w.o.From.Clock(ctx); err == nil {
				_ = server.SetClock(ctx, ahead, doubt) // publishing reports the same failure
			}
		}
		rows := append(w.nodes(ctx, server.Server), w.row())
		if err := w.o.From.ReportAll(ctx, rows); err != nil {
			w.o.Log.Debug("worker: the rows of nodes were not written", "err", err)
		}
		aside.Sleep(ctx, asideEvery)
	}
}

// row returns this worker's own report.
func (w *Worker) row() rulesdb.Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return rulesdb.Node{Name: w.o.Name, Version: w.held, Hash: w.hash, Since: w.since, Error: w.problem}
}

// nodes returns the rows of nodes that have written since the last call.
func (w *Worker) nodes(ctx context.Context, server *rulesredis.Server) (rows []rulesdb.Node) {
	if server == nil {
		return nil
	}
	all, beats, err := server.Nodes(ctx)
	if err != nil {
		return nil
	}
	r := &w.relay
	if r.beats == nil {
		r.beats, r.seen = make(map[string]string), make(map[string]time.Time)
	}
	now := time.Now()
	for i, n := range all {
		if r.beats[n.Name] != beats[i] {
			r.beats[n.Name], r.seen[n.Name] = beats[i], now
			rows = append(rows, n)
		}
	}
	for name, seen := range r.seen {
		if now.Sub(seen) > goneAfter {
			_ = server.Forget(ctx, name) // the next round tries again
			delete(r.seen, name)
			delete(r.beats, name)
		}
	}
	return rows
}
