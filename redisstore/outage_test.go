package redisstore_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/cputime"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// TestOutageIsQuiet holds goroutines, connections and processor time of an idle store while
// its master is gone, in every topology: what one process does by itself during an outage,
// a thousand do to those who are electing another master.
func TestOutageIsQuiet(t *testing.T) {
	need.Time(t)
	// Not parallel: it is about the whole process.
	const lasts = 4 * time.Second
	for _, topology := range []struct {
		name  string
		start func(t *testing.T) (url string, master *redistest.Server, others []*redistest.Server, cut func())
	}{
		{"single", func(t *testing.T) (string, *redistest.Server, []*redistest.Server, func()) {
			s := redistest.Start(t)
			return s.URL(), s, nil, func() {}
		}},
		{"cluster", func(t *testing.T) (string, *redistest.Server, []*redistest.Server, func()) {
			c := redistest.StartCluster(t, 3, 0)
			return c.Nodes[0].URL(), c.Nodes[0], c.Nodes[1:], func() {}
		}},
		{"Sentinel", func(t *testing.T) (string, *redistest.Server, []*redistest.Server, func()) {
			s := redistest.StartSentinels(t)
			s.Data[1].Kill() // nobody can be promoted
			s.DownAfter(t, time.Second/2)
			return s.URL(), s.Data[0], s.Sentinels, func() {}
		}},
		{"Sentinel, of which one is gone and the others hang up", func(t *testing.T) (string, *redistest.Server, []*redistest.Server, func()) {
			s := redistest.StartSentinels(t)
			s.Data[1].Kill()
			s.DownAfter(t, time.Second/2)
			return s.URL(), s.Data[0], s.Sentinels[1:], func() {
				s.Sentinels[0].Kill()
				for _, one := range s.Sentinels[1:] {
					one.CLI(t, "client", "kill", "type", "pubsub")
					one.CLI(t, "client", "kill", "type", "normal")
				}
			}
		}},
	} {
		t.Run(topology.name, func(t *testing.T) {
			url, master, others, cut := topology.start(t)
			store := open(t, url, redisstore.Options{Timeout: patience})
			take(t, bind(t, store, "1000/1h"), "key", 1)
			counted := make(chan int, 100)
			store.CountNodes(func(n int) { counted <- n })
			<-counted
			goroutines, connections, used := runtime.NumGoroutine(), received(t, others), cputime.Used(t)
			master.Kill()
			cut()
			most := 0
			for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				most = max(most, runtime.NumGoroutine())
			}
			used, connections = cputime.Used(t)-used, received(t, others)-connections
			t.Logf("in %v: %d goroutines more, %d connections, %v of a processor", lasts, most-goroutines, connections, used)
			if most > goroutines+40 {
				t.Errorf("%d goroutines more", most-goroutines)
			}
			if connections > 30 {
				t.Errorf("%d connections to who is left", connections)
			}
			if used > 500*time.Millisecond {
				t.Errorf("%v of a processor", used)
			}
		})
	}
}

// received returns how many connections servers have accepted, but for the one that asks.
func received(t *testing.T, servers []*redistest.Server) (n int) {
	t.Helper()
	for _, s := range servers {
		n += int(s.Stat(t, "stats", "total_connections_received:"))
	}
	return n - len(servers)
}
