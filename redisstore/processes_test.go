package redisstore_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// nodeProcess names the variable that makes this test binary a node: URL and
// prefix.
const nodeProcess = "STINT_LEASE_NODE"

const (
	processRate  = 20_000
	processBurst = 4_000
	processSlot  = 50 * time.Millisecond
)

// TestLeaseNodeProcess is a node of TestLeaseProcesses when its environment says
// so. It takes as much as it can until it is killed or its input ends, and prints,
// for each slot of time, how much was let through in calls that began there and ended
// there or later.
func TestLeaseNodeProcess(t *testing.T) {
	url, prefix, ok := strings.Cut(os.Getenv(nodeProcess), " ")
	if !ok {
		return // the tests are run as such
	}
	s := open(t, url, redisstore.Options{Prefix: prefix})
	defer s.Close()
	limit := bindIn(t, s, redisstore.Lease, fmt.Sprintf("%d/1s burst %d", processRate, processBurst))
	slot := func() int64 { return time.Now().UnixNano() / int64(processSlot) }
	var over atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // however it ends
		over.Store(true)
	}()
	for !over.Load() {
		before, n := slot(), 0
		for range 20 {
			if ok, err := limit.Allow(ctx, "k", 1); err == nil && ok {
				n++
			}
		}
		if n > 0 {
			fmt.Printf("took %d %d %d\n", before, slot(), n)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// TestLeaseProcesses runs four processes on one key. One is killed with leases
// in hand, and one is paused for longer than a lease lasts. In no stretch do
// the calls that lie wholly in it let through more than B + d/T.
func TestLeaseProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	server := redistest.Start(t)
	var mu sync.Mutex
	took := make(map[[2]int64]int64) // by the slots in which calls began and ended
	var sums [4]atomic.Int64         // of each node
	var wg sync.WaitGroup
	var nodes []*exec.Cmd
	var inputs []io.Closer
	for i := range sums {
		cmd := exec.Command(os.Args[0], "-test.run=^TestLeaseNodeProcess$")
		cmd.Env = append(os.Environ(), nodeProcess+"="+server.URL()+" processes")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, in)
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		nodes = append(nodes, cmd)
		wg.Go(func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				var from, to, n int64
				if _, err := fmt.Sscanf(lines.Text(), "took %d %d %d", &from, &to, &n); err == nil {
					mu.Lock()
					took[[2]int64{from, to}] += n
					mu.Unlock()
					sums[i].Add(n)
				}
			}
			_ = cmd.Wait() // one of them was killed
		})
	}
	signal := func(node int, s syscall.Signal) {
		if err := nodes[node].Process.Signal(s); err != nil {
			t.Error(err)
		}
	}
	enough := func(of ...int) bool {
		return !slices.ContainsFunc(of, func(i int) bool { return sums[i].Load() < processBurst })
	}
	eventually(t, "not all take", func() bool { return enough(0, 1, 2, 3) })
	signal(0, syscall.SIGSTOP)
	signal(1, syscall.SIGKILL)
	time.Sleep(3 * time.Second)
	before := sums[0].Load()
	signal(0, syscall.SIGCONT)
	eventually(t, "too little to judge by", func() bool {
		return sums[0].Load() > before && sums[0].Load()+sums[1].Load()+sums[2].Load()+sums[3].Load() >= 3*processRate
	})
	for _, in := range inputs {
		_ = in.Close() // one of them was killed
	}
	wg.Wait()

	total := int64(0)
	for first := range took {
		within := make(map[int64]int64) // by the slot in which calls ended, of those that began no earlier
		last := first[0]
		for at, n := range took {
			if at[0] >= first[0] {
				within[at[1]] += n
				last = max(last, at[1])
			}
		}
		sum := int64(0)
		for slot := first[0]; slot <= last; slot++ {
			sum += within[slot]
			stretch := time.Duration(slot+1-first[0]) * processSlot
			if most := processBurst + int64(stretch*processRate/time.Second); sum > most {
				t.Fatalf("%d in %v, at most %d", sum, stretch, most)
			}
		}
		total = max(total, sum)
	}
	t.Logf("%d admitted", total)
}
