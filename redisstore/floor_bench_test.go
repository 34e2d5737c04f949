package redisstore_test

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
)

// BenchmarkFloor measures decisions beside the least script that keeps a key,
// through the same client, in slices that take turns: "x" is how many decisions
// were made for each of its calls, the median of the pairs; "calls" how many are on
// their way before requests wait, of which redisstore.MaxInFlight is what stores do.
func BenchmarkFloor(b *testing.B) {
	server := redistest.Start(b)
	driver := redisstore.NewDriver(client(b, server.Addr))
	least := leastScript(b, driver)
	for _, callers := range []int{1, 16, 128} {
		for calls := 1; calls <= 3; calls++ {
			if callers == 1 && calls != redisstore.MaxInFlight {
				continue
			}
			b.Run(fmt.Sprintf("callers=%d/calls=%d", callers, calls), func(b *testing.B) { besideFloor(b, server, driver, least, callers, calls) })
		}
	}
}

// besideFloor measures with so many calls on their way before requests wait.
func besideFloor(b *testing.B, server *redistest.Server, driver redisstore.Driver, least func(key string) error, callers, calls int) {
	store, err := redisstore.New(redisstore.Options{Driver: driver, Prefix: "floor", Timeout: 5 * time.Second, NewKeys: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	store.SetInFlight(calls)
	limit := bind(b, store, "1/s burst 1000000")
	ours := func(key string) error {
		_, err := limit.Decide(ctx, meter.OpTake, key, 1)
		return err
	}
	var ratios []float64
	var floors, all spent
	for range max(b.N, 5) {
		before := spend(b, server)
		base := rate(b, callers, "floor:", least)
		between := spend(b, server)
		own := rate(b, callers, "ours:", ours)
		floors.add(before, between, base)
		all.add(between, spend(b, server), own)
		ratios = append(ratios, own/base)
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "x")
	b.ReportMetric(all.decisions/float64(store.Stats().Results.OK), "decisions/call")
	b.ReportMetric(4*floors.decisions/float64(len(ratios)), "floor/s")
	for of, one := range map[string]spent{"": all, "floor-": floors} {
		b.ReportMetric(one.client, of+"client-µs")
		b.ReportMetric(one.clientSystem, of+"client-system-µs")
		b.ReportMetric(one.server, of+"server-µs")
		b.ReportMetric(one.serverSystem, of+"server-system-µs")
	}
	b.ReportMetric(0, "ns/op")
}

// leastScript returns what runs the least script that keeps a key.
func leastScript(b *testing.B, driver redisstore.Driver) func(key string) error {
	if _, err := driver.Eval(ctx, floor, []string{"floor"}, nil); err != nil {
		b.Fatal(err)
	}
	sum := sha1.Sum([]byte(floor))
	sha := hex.EncodeToString(sum[:])
	return func(key string) error {
		_, err := driver.EvalSHA(ctx, sha, []string{key}, nil)
		return err
	}
}

// spent is processor time: of this process and of a server, and what of each was the
// system's, in µs; at last, for each decision.
type spent struct{ client, clientSystem, server, serverSystem, decisions float64 }

func spend(b *testing.B, server *redistest.Server) (now spent) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	now.clientSystem = float64(used.Stime.Nano()) / 1e3
	now.client = now.clientSystem + float64(used.Utime.Nano())/1e3
	info := server.CLI(b, "info", "cpu")
	seconds := func(name string) (n float64) {
		_, rest, _ := strings.Cut(info, name)
		_, _ = fmt.Sscan(rest, &n)
		return n
	}
	now.serverSystem = seconds("used_cpu_sys:") * 1e6
	now.server = now.serverSystem + seconds("used_cpu_user:")*1e6
	return now
}

// add counts in a slice of 250 ms at a rate.
func (s *spent) add(from, to spent, rate float64) {
	n := rate / 4
	each := func(mean *float64, used float64) { *mean = (*mean*s.decisions + used) / (s.decisions + n) }
	each(&s.client, to.client-from.client)
	each(&s.clientSystem, to.clientSystem-from.clientSystem)
	each(&s.server, to.server-from.server)
	each(&s.serverSystem, to.serverSystem-from.serverSystem)
	s.decisions += n
}

// rate returns how many calls a second the callers make, over 10,000 keys.
func rate(b *testing.B, callers int, prefix string, call func(key string) error) float64 {
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = prefix + strconv.Itoa(i)
	}
	var done atomic.Int64
	var wg sync.WaitGroup
	begun := time.Now()
	until := begun.Add(250 * time.Millisecond)
	for c := range callers {
		wg.Go(func() {
			n := 0
			for i := c * 7919; time.Now().Before(until); i++ {
				if err := call(keys[i%len(keys)]); err != nil {
					b.Error(err)
					return
				}
				n++
			}
			done.Add(int64(n))
		})
	}
	wg.Wait()
	return float64(done.Load()) / time.Since(begun).Seconds()
}
