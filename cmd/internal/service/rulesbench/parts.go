package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/cmd/internal/service/rulesredis"
	"github.com/stint-dev/stint/cmd/internal/service/rulesworker"
)

func upTo(d time.Duration) func() time.Duration { return func() time.Duration { return rand.N(d) } }

// filled returns a database with the rule, at limit requests per minute.
func (b *bench) filled(limit int) (db *rulesdb.DB, url string, err error) {
	if db, url, err = b.database(); err == nil {
		err = put(db, limit)
	}
	return db, url, err
}

// listen measures how soon a commit is enforced on three nodes that LISTEN.
func (b *bench) listen() error {
	db, url, err := b.filled(1)
	if err != nil {
		return err
	}
	nodes, err := three(url)
	if err != nil {
		return err
	}
	defer stopAll(nodes)
	time.Sleep(time.Second) // they listen
	all, err := propagation(db, nodes, 500, upTo(100*time.Millisecond))
	if err != nil {
		return err
	}
	row("commit → enforced on 3 nodes, LISTEN (500 publications)", fmt.Sprintf("p50 %s, p99 %s, longest %s", ms(all.at(0.5)), ms(all.at(0.99)), ms(all.at(1))), "p50 50 ms, p99 250 ms")
	return nil
}

// poll is listen by way of a PgBouncer in transaction mode, which loses LISTEN.
func (b *bench) poll() error {
	db, url, err := b.filled(1)
	if err != nil {
		return err
	}
	nodes, err := three(dbtest.PgBouncer(&b.host, url))
	if err != nil {
		return err
	}
	defer stopAll(nodes)
	all, err := propagation(db, nodes, 25, upTo(2*time.Second))
	if err != nil {
		return err
	}
	row("the same with LISTEN dead (PgBouncer in transaction mode, 25 publications)", fmt.Sprintf("p50 %s, longest %s", ms(all.at(0.5)), ms(all.at(1))), "5 s")
	return nil
}

// worker is listen for nodes that read from a Redis, which a worker feeds.
func (b *bench) worker() error {
	db, _, err := b.filled(1)
	if err != nil {
		return err
	}
	url := dbtest.Redis(&b.host).URL
	to, err := rulesredis.Open(url, "")
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		rulesworker.New(rulesworker.Options{From: db, To: rulesworker.Redis(to), Name: "w", Log: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	defer func() { stop(); <-done; to.Close() }()
	var nodes []*node
	for range 3 {
		from, err := rulesredis.Open(url, "")
		if err != nil {
			return err
		}
		defer from.Close()
		n, err := follow(from, "")
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
	}
	defer stopAll(nodes)
	time.Sleep(time.Second) // they listen
	all, err := propagation(db, nodes, 300, upTo(100*time.Millisecond))
	if err != nil {
		return err
	}
	row("commit → enforced on 3 nodes behind a worker and Redis (300 publications)", fmt.Sprintf("p50 %s, p99 %s, longest %s", ms(all.at(0.5)), ms(all.at(0.99)), ms(all.at(1))), "")
	return nil
}

// following starts a node on a database, with a last copy if that has a name.
func following(url, copy string) (n *node, stop func(), err error) {
	from, err := rulesdb.Open(url, rulesdb.Options{})
	if err != nil {
		return nil, nil, err
	}
	if n, err = follow(from, copy); err != nil {
		from.Close()
		return nil, nil, err
	}
	return n, func() { n.stop(); from.Close() }, nil
}

// deciding decides for random customers until it is stopped, and returns how long
// decisions took, and the most processor time of this process between two.
func deciding(n *node, stop *atomic.Bool) (took *histogram, longest time.Duration) {
	keys := make([]policy.Map, 4096)
	for i := range keys {
		keys[i] = policy.Map{"ip": fmt.Sprintf("192.0.%d.%d", i/256, i%256), "path": "/x"}
	}
	took = new(histogram)
	var r policy.Result
	last := processorTime()
	for i := 0; !stop.Load(); i++ {
		begun := time.Now()
		_ = n.source.Policy().Decide(context.Background(), keys[i%len(keys)], 1, &r) // memory does not fail
		if i%8 == 0 {
			took.add(time.Since(begun))
		}
		if i%16 == 0 { // asking takes as long as a decision
			now := processorTime()
			longest = max(longest, now-last)
			last = now
			runtime.Gosched() // a server has a goroutine for each connection
		}
	}
	return took, longest
}

// decidingWhile returns the 99th percentile of decisions of 5 s, while something
// is done 50 times a second.
func decidingWhile(n *node, do func(k int) error) (p99 time.Duration, err error) {
	var stop atomic.Bool
	var took *histogram
	done := make(chan struct{})
	go func() {
		took, _ = deciding(n, &stop)
		close(done)
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for k := range 250 {
		<-tick.C
		if err = do(k); err != nil {
			break
		}
	}
	stop.Store(true)
	<-done
	return took.at(0.99), err
}

// changes measures decisions while overrides change.
func (b *bench) changes() error {
	db, url, err := b.filled(1000)
	if err != nil {
		return err
	}
	n, stop, err := following(url, "")
	if err != nil {
		return err
	}
	defer stop()
	// What the same changes cost the machine, they cost in another database too.
	beside, _, err := b.database()
	if err != nil {
		return err
	}
	if err := put(beside, 1000); err != nil {
		return err
	}
	batch := func(to *rulesdb.DB, k int) error {
		all := make([]rulesource.Override, 20)
		for i, at := range rand.Perm(4096)[:len(all)] {
			all[i] = rulesource.Override{Rule: "api", Key: fmt.Sprintf("192.0.%d.%d", at/256, at%256), Limits: []string{fmt.Sprintf("%d/m", 1000+k%5)}}
		}
		return to.ImportOverrides(context.Background(), "bench", all)
	}
	if err := batch(db, 0); err != nil {
		return err
	}
	var without, with sample
	for range 5 {
		for _, one := range []struct {
			to  *rulesdb.DB
			all *sample
		}{{beside, &without}, {db, &with}} {
			p99, err := decidingWhile(n, func(k int) error { return batch(one.to, k) })
			if err != nil {
				return err
			}
			*one.all = append(*one.all, p99)
		}
	}
	a, c := without.at(0.5), with.at(0.5)
	row("p99 of decisions while 1,000 overrides a second change (median of 5 × 5 s each)", fmt.Sprintf("%v, and %v while as many change in a database that the node does not follow: %.2f ×", c, a, float64(c)/float64(a)), "1.1 × without")
	return nil
}

// manyRules returns 5,000 rules, and one for every request.
func manyRules(k int) []byte {
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range 5000 {
		fmt.Fprintf(&text, "  - {name: r%d, match: {path: /r%d/*}, key: [ip], limits: [%d/m]}\n", i, i, 10+k)
	}
	text.WriteString("  - {name: api, key: [ip], limits: [100000/m]}\n")
	return []byte(text.String())
}

// publish measures the longest time between two decisions while 5,000 rules are
// published.
func (b *bench) publish() error {
	db, url, err := b.database()
	if err != nil {
		return err
	}
	send := func(k int) error {
		_, err := db.Publish(context.Background(), rulesdb.AnyVersion, rulesdb.Revision{Name: "stint.yaml", Document: manyRules(k)})
		return err
	}
	if err := send(0); err != nil {
		return err
	}
	n, stop, err := following(url, "")
	if err != nil {
		return err
	}
	defer stop()
	run := func(k int) (time.Duration, error) {
		var stop atomic.Bool
		var longest time.Duration
		done := make(chan struct{})
		go func() {
			_, longest = deciding(n, &stop)
			close(done)
		}()
		var err error
		if k > 0 {
			err = send(k)
			for begun := time.Now(); err == nil; time.Sleep(time.Millisecond) {
				if v, _ := n.source.Held(); v.Revision == int64(k+1) {
					break
				}
				if time.Since(begun) > time.Minute {
					err = fmt.Errorf("revision %d is not taken", k+1)
				}
			}
		} else {
			time.Sleep(time.Second)
		}
		stop.Store(true)
		<-done
		return longest, err
	}
	var without, with sample
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for k := 1; k <= 10; k++ {
		a, err := run(0)
		if err != nil {
			return err
		}
		c, err := run(k)
		if err != nil {
			return err
		}
		without, with = append(without, a), append(with, c)
	}
	row("longest pause of decisions while 5,000 rules are published, in processor time on one core (10 times)", fmt.Sprintf("median %s, longest %s; without a publication, median %s, longest %s", ms(with.at(0.5)), ms(with.at(1)), ms(without.at(0.5)), ms(without.at(1))), "5 ms")
	return nil
}

// gone is a database that does not answer.
const gone = "postgres://stint@127.0.0.1:1/none?sslmode=disable"

// start measures a start from the last copy while the database is gone.
func (b *bench) start() error {
	db, _, err := b.filled(1)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "rulesbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for i := range 100 {
		all := make([]rulesource.Override, 1000)
		for k := range all {
			all[k] = rulesource.Override{Rule: "api", Key: fmt.Sprintf("%d-%d", i, k), Limits: []string{"9/m"}}
		}
		if err := db.ImportOverrides(context.Background(), "bench", all); err != nil {
			return err
		}
	}
	copy := filepath.Join(dir, "copy")
	n, err := follow(db, copy)
	if err != nil {
		return err
	}
	n.stop()
	var all sample
	for range 5 {
		begun := time.Now()
		_, stop, err := following(gone, copy)
		if err != nil {
			return err
		}
		all = append(all, time.Since(begun))
		stop()
	}
	row("start from the last copy while the database is gone, 100,000 overrides", fmt.Sprintf("median %s, longest %s", ms(all.at(0.5)), ms(all.at(1))), "1 s")
	return nil
}

// expiry measures how far apart three nodes end an override.
func (b *bench) expiry() error {
	db, url, err := b.filled(5)
	if err != nil {
		return err
	}
	nodes, err := three(url)
	if err != nil {
		return err
	}
	defer stopAll(nodes)
	var all sample
	for range 20 {
		_, now, err := db.SetOverride(context.Background(), rulesource.Override{Rule: "api", Key: "192.0.2.1", Limits: []string{"9/m"}}, time.Second)
		if err != nil {
			return err
		}
		ahead, _, err := db.Clock(context.Background())
		if err != nil {
			return err
		}
		end := now.Expires.Add(-ahead)
		time.Sleep(time.Until(end) - 100*time.Millisecond)
		var first, last time.Duration
		for left := len(nodes); left > 0; {
			left = 0
			for _, n := range nodes {
				if n.limit() == "9/1m" {
					left++
				}
			}
			at := time.Since(end)
			if left == len(nodes) {
				first = at
			}
			last = at
		}
		all = append(all, max(-min(first, 0), last))
	}
	row("an override's end on 3 nodes: away from its time by the database's clock (20 times)", fmt.Sprintf("median %s, most %s", ms(all.at(0.5)), ms(all.at(1))), "100 ms")
	return nil
}

// millions loads ten million overrides on five plans.
func (b *bench) millions() error {
	db, url, err := b.database()
	if err != nil {
		return err
	}
	if _, err := db.Publish(context.Background(), 0, rulesdb.Revision{Name: "stint.yaml", Document: []byte("rules: [{name: api, key: [user], limits: [1000/m]}]\n")}); err != nil {
		return err
	}
	begun := time.Now()
	dbtest.Exec(&b.host, url, "DROP INDEX stint_overrides_change",
		fmt.Sprintf(`INSERT INTO stint_overrides SELECT 'api', convert_to('customer-' || i, 'UTF8'), 1, (i %% 5 + 1) * 100 || '/m', 1, 0, '', 'bench', 1 FROM generate_series(1, %d) i`, b.overrides),
		"CREATE INDEX stint_overrides_change ON stint_overrides (change_number)", "UPDATE stint_state SET change_number = 1", "VACUUM ANALYZE stint_overrides")
	fmt.Fprintf(os.Stderr, "%d rows were written in %v\n", b.overrides, time.Since(begun).Round(time.Second))
	dir, err := os.MkdirTemp("", "rulesbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	before := lookups(db)
	for _, copy := range []string{"", filepath.Join(dir, "copy")} {
		heap := heapNow()
		begun = time.Now()
		n, err := follow(db, copy)
		if err != nil {
			return err
		}
		took := time.Since(begun)
		heap = heapNow() - heap
		customers, plans, bytes := n.source.Policy().Overrides()
		what := fmt.Sprintf("%d overrides on %d plans: load", customers, plans)
		if copy != "" {
			info, _ := os.Stat(copy)
			row(what+", with a last copy", fmt.Sprintf("%.1f s; the copy takes %d MB", took.Seconds(), info.Size()/1e6), "60 s")
			n.stop()
			continue
		}
		row(what, fmt.Sprintf("%.1f s", took.Seconds()), "60 s")
		row("… memory: the table, and the growth of the heap", fmt.Sprintf("%d MB, %d MB", bytes/1e6, heap/1e6), "250 MB")
		for i, some := range asked {
			with := measure(n, b.overrides, some)
			row(fmt.Sprintf("… a decision of one of %d customers at random, without and with them", some), fmt.Sprintf("%v, %v: + %v", before[i], with, with-before[i]), "+ 100 ns")
			row(fmt.Sprintf("… of that, what reading one of %d lines at random takes, of as much memory", some), line(bytes, some).String(), "")
		}
		n.stop()
	}
	return nil
}

// heapNow returns the bytes of the heap in use.
func heapNow() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// lookups measures decisions of a node that has the rules alone.
func lookups(db *rulesdb.DB) (took [len(asked)]time.Duration) {
	n, err := follow(ruleOnly{db}, "")
	if err != nil {
		return took
	}
	defer n.stop()
	for i, some := range asked {
		took[i] = measure(n, 10_000_000, some)
	}
	return took
}

// asked is how many customers are looked up in turn: few enough for what a lookup
// reads to stay in the processor's caches, and enough for it not to.
var asked = [...]int{1 << 10, 1 << 16}

// ruleOnly is a source without its overrides.
type ruleOnly struct{ *rulesdb.DB }

func (r ruleOnly) Load(ctx context.Context, held rulesource.Version, to rulesource.Receiver) (*rulesource.Snapshot, error) {
	document, err := r.Revision(ctx, 0)
	if err != nil {
		return nil, err
	}
	s := &rulesource.Snapshot{Version: rulesource.Version{Identity: "x", Revision: document.Number}, Name: document.Name, Hash: document.Hash, Document: document.Document}
	return s, to.Begin(s, true)
}

func (r ruleOnly) Wait(ctx context.Context, _ rulesource.Version) error {
	<-ctx.Done()
	return ctx.Err()
}

// measure returns how long a decision takes for some of the customers, who were
// asked before: what the store does for a new one is another matter.
func measure(n *node, customers, some int) time.Duration {
	asks := make([]policy.Map, some)
	for i := range asks {
		asks[i] = policy.Map{"user": fmt.Sprintf("customer-%d", 1+rand.IntN(customers))}
	}
	var r policy.Result
	best := time.Duration(1 << 62)
	for range 12 << 16 / some {
		begun := time.Now()
		for _, a := range asks {
			_ = n.source.Policy().Decide(context.Background(), a, 1, &r) // memory does not fail
		}
		best = min(best, time.Since(begun)/time.Duration(some)) // never the first time
	}
	return best
}
