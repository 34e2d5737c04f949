package redisstore_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/internal/testkit/race"
	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/storetest"
)

func TestMain(m *testing.M) {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < 4 { // tests that are parallel wait more than they work
		flag.Parse()
		if set := flag.Lookup("test.parallel"); set.Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
			_ = set.Value.Set("4")
		}
	}
	goleak.VerifyTestMain(settling{m})
}

// settling gives goroutines that are about to end time for it, before those that
// are left are looked for.
type settling struct{ *testing.M }

func (s settling) Run() int {
	status := s.M.Run()
	for end := time.Now().Add(patience); goleak.Find() != nil && time.Now().Before(end) && status == 0; {
		time.Sleep(100 * time.Millisecond)
	}
	return status
}

// part is which part of the laws a store is held to: the whole where that takes
// seconds, or there is time.
func part() int {
	if os.Getenv("STINT_SOAK") == "" && (race.On || testing.Short()) {
		return 4
	}
	return 1
}

var prefixes atomic.Int64

const patience = redistest.MostWait

var eventually = redistest.Eventually

// open returns a store of its own on a server that others may use too.
func open(t testing.TB, url string, o redisstore.Options) *redisstore.Store {
	t.Helper()
	o.URL = url
	if o.Prefix == "" {
		o.Prefix = fmt.Sprint("test", prefixes.Add(1))
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second // the machine may be busy: no test here is about time
	}
	store, err := redisstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() }) // the test may have
	return store
}

func TestStore(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.Addr)
	storetest.Suite{
		Quantum:  time.Microsecond,
		Parallel: true,
		Part:     part(),
		Open: func(t testing.TB, now func() int64) stint.Store {
			return open(t, "", redisstore.Options{Client: c, Now: now})
		},
	}.Run(t)
}

func parse(t testing.TB, text string) stint.Limit {
	t.Helper()
	return made.Limit(t, text)
}
