// Package faulttest does to real servers what may happen to them, and holds a
// store to what is promised meanwhile: through any driver, so that the tests of
// redisstore and those of redisstore/goredis are the same.
package faulttest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// A Place is where servers are.
type Place struct {
	Addrs    []string // of one server, of nodes of a cluster, or of Sentinels
	Cluster  bool
	Sentinel bool   // of a set that is called stint
	Password string // "" for none
}

// URL returns the place as a URL.
func (p Place) URL() string {
	url := "redis://"
	if p.Password != "" {
		url += ":" + p.Password + "@"
	}
	url += p.Addrs[0]
	var more []string
	if p.Sentinel {
		more = append(more, "master_set=stint")
	}
	for _, addr := range p.Addrs[1:] {
		more = append(more, "addr="+addr)
	}
	if len(more) > 0 {
		url += "?" + strings.Join(more, "&")
	}
	return url
}

// placeOf is where a cluster is.
func placeOf(c *redistest.Cluster) Place { return Place{Addrs: c.Addrs(), Cluster: true} }

// A Client returns options of a store that uses the client under test at a
// place. What it makes ends with the test.
type Client func(t testing.TB, at Place) redisstore.Options

var (
	ctx      = context.Background()
	prefixes atomic.Int64
)

// Slow runs what servers may suffer as a test that -short leaves out. Others run beside
// it: it waits more than it works.
func Slow(t *testing.T, client Client, suffer func(*testing.T, Client)) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	suffer(t, client)
}

// open returns a store with a prefix of its own, which ends with the test.
func open(t testing.TB, o redisstore.Options) *redisstore.Store {
	t.Helper()
	if o.Prefix == "" {
		o.Prefix = fmt.Sprint("fault", prefixes.Add(1))
	}
	store, err := redisstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func parse(t testing.TB, text string) stint.Limit {
	t.Helper()
	l, err := stint.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

const patience = redistest.MostWait

var eventually = redistest.Eventually
