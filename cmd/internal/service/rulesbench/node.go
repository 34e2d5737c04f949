package main

import (
	"context"
	"fmt"
	"time"

	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/cmd/internal/service/rules"
)

// A bench has the servers that parts share.
type bench struct {
	host      host
	overrides int
	postgres  *dbtest.Server
	made      int
}

// database returns an empty database of rules, and its URL.
func (b *bench) database() (*rulesdb.DB, string, error) {
	if b.postgres == nil {
		b.postgres = dbtest.Postgres(&b.host)
	}
	b.made++
	url := b.postgres.Database(&b.host, fmt.Sprintf("bench%d", b.made))
	db, err := rulesdb.Open(url, rulesdb.Options{})
	if err != nil {
		return nil, "", err
	}
	b.host.Cleanup(func() { db.Close() })
	_, _, err = db.Migrate(context.Background())
	return db, url, err
}

// A node follows a source as stint serve does.
type node struct {
	source *rules.Source
	stop   func()
}

// follow starts a node of a source, with its copy in a file or "" for none.
func follow(from rulesource.Source, copy string) (*node, error) {
	ctx, cancel := context.WithCancel(context.Background())
	follower, first, err := rules.Follow(ctx, rules.Following{Source: from, Name: "bench", Copy: copy})
	if err != nil {
		cancel()
		return nil, err
	}
	store := memstore.New(memstore.Options{})
	source, err := follower.Open(ctx, store, first, rules.Options{})
	if err != nil {
		cancel()
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = source.Watch(ctx) // it ends with ctx
	}()
	return &node{source, func() {
		cancel()
		<-done
		source.Policy().Close()
		_ = store.Close() // it is in memory
	}}, nil
}

// three starts three nodes of a database, each with connections of its own.
func three(url string) ([]*node, error) {
	var nodes []*node
	for range 3 {
		from, err := rulesdb.Open(url, rulesdb.Options{})
		if err != nil {
			return nil, err
		}
		n, err := follow(from, "")
		if err != nil {
			return nil, err
		}
		stop := n.stop
		n.stop = func() { stop(); from.Close() }
		nodes = append(nodes, n)
	}
	return nodes, nil
}

func stopAll(nodes []*node) {
	for _, n := range nodes {
		n.stop()
	}
}

// limit returns the text of the limit that a node decides an address by.
func (n *node) limit() string {
	var r policy.Result
	if err := n.source.Policy().Peek(context.Background(), policy.Map{"ip": "192.0.2.1"}, 1, &r); err != nil || len(r.Rules) == 0 {
		return ""
	}
	return r.Rules[0].Text
}

// put publishes a rule of n requests per minute.
func put(db *rulesdb.DB, n int) error {
	_, err := db.Publish(context.Background(), rulesdb.AnyVersion, rulesdb.Revision{Name: "stint.yaml",
		Document: fmt.Appendf(nil, "rules: [{name: api, key: [ip], limits: [%d/m]}]\n", n)})
	return err
}

// propagation publishes again and again, and returns how long after the commit
// the last of the nodes decided by it.
func propagation(db *rulesdb.DB, nodes []*node, times int, between func() time.Duration) (sample, error) {
	var all sample
	for i := range times {
		if err := put(db, 100+i); err != nil {
			return nil, err
		}
		committed, want := time.Now(), fmt.Sprintf("%d/1m", 100+i)
		for _, n := range nodes {
			for n.limit() != want {
				if time.Since(committed) > time.Minute {
					return nil, fmt.Errorf("a node does not take %s", want)
				}
				time.Sleep(200 * time.Microsecond)
			}
		}
		all = append(all, time.Since(committed))
		time.Sleep(between())
	}
	return all, nil
}
