package redisstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/redistest"
	"github.com/stint-dev/stint/redisstore"
)

// A process runs one test of this binary, which finds in its environment what it is to do,
// until its input ends or it is killed.
type process struct {
	*os.Process
	input io.Closer
	ended chan struct{}
}

// startProcess starts one, and hands on the lines that it prints.
func startProcess(t *testing.T, test, environment string, printed func(line string)) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), environment)
	in, noInput := cmd.StdinPipe()
	out, noOutput := cmd.StdoutPipe()
	if err := errors.Join(noInput, noOutput, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd.Process, in, make(chan struct{})}
	go func() {
		defer close(p.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			printed(lines.Text())
		}
		_ = cmd.Wait() // it may have been killed
	}()
	t.Cleanup(func() {
		_ = p.Kill()
		<-p.ended
	})
	return p
}

// end ends processes, and waits for that.
func end(all ...*process) {
	for _, p := range all {
		_ = p.input.Close()
	}
	for _, p := range all {
		<-p.ended
	}
}

// untilInputEnds returns a context that ends with the input of this process.
func untilInputEnds() context.Context {
	life, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // however it ends
		stop()
	}()
	return life
}

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
	limit := bindIn(t, s, redisstore.Lease, fmt.Sprintf("%d/1s burst %d", processRate, processBurst))
	slots, life := NewSpans(processSlot), untilInputEnds()
	for life.Err() == nil {
		before, n := slots.Now(), 0
		for range 20 {
			if ok, err := limit.Allow(ctx, "k", 1); err == nil && ok {
				n++
			}
		}
		if n > 0 {
			fmt.Printf("took %d %d %d\n", before, slots.Now(), n)
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
	took := NewSpans(processSlot)
	var sums [4]atomic.Int64 // of each node
	var nodes []*process
	for i := range sums {
		nodes = append(nodes, startProcess(t, "TestLeaseNodeProcess", nodeProcess+"="+server.URL()+" processes", func(line string) {
			var from, to, n int64
			if _, err := fmt.Sscanf(line, "took %d %d %d", &from, &to, &n); err == nil {
				took.Note(from, to, n)
				sums[i].Add(n)
			}
		}))
	}
	signal := func(node int, s syscall.Signal) {
		if err := nodes[node].Signal(s); err != nil {
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
	end(nodes...)
	took.Judge(t, "four processes", func(_, _ int64, stretch time.Duration) int64 {
		return processBurst + int64(stretch*processRate/time.Second)
	})
	t.Logf("%d admitted", took.Sum())
}
