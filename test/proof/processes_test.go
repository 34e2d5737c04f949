package proof_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/meter"
	"github.com/stint-dev/stint/redisstore"
	"github.com/stint-dev/stint/test/proof/oracle"
)

// The environment variables of a process of TestEnvelopeProcesses.
const (
	processSocket = "STINT_PROOF_SOCKET"
	processSeed   = "STINT_PROOF_SEED"
	processTakes  = "STINT_PROOF_TAKES"
)

// Several processes that share limits through a real Redis admit together what
// the envelope allows, and deny nothing without a reason. In a soak these are
// ten million decisions.
func TestEnvelopeProcesses(t *testing.T) {
	if socket := os.Getenv(processSocket); socket != "" {
		beProcess(t, socket)
		return
	}
	const processes = 3
	takes := scaled(5_000, 10_000, 50_000)
	for round := range scaled(1, 1, 67) {
		socket := startRedis(t)
		histories := make([][][]oracle.Event, processes)
		var running sync.WaitGroup
		for i := range histories {
			running.Go(func() { histories[i] = runProcess(t, socket, round*processes+i, takes) })
		}
		running.Wait()
		if t.Failed() {
			return
		}
		all := newContest(t, nil, nil, everyKind...)
		for _, h := range histories {
			for k := range h {
				all.seen[k] = append(all.seen[k], h[k]...)
			}
		}
		all.judge()
		all.contested()
	}
}

// startRedis starts a server on a socket of its own, until the test ends.
func startRedis(t *testing.T) (socket string) {
	t.Helper()
	program := need.Program(t, "redis-server")
	dir, err := os.MkdirTemp("", "stint") // short: a socket's path has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "s")
	cmd := exec.Command(program, "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("unix", socket); err == nil { // the file is there before the server listens
			_ = c.Close()
			return socket
		}
	}
	t.Fatal("redis-server does not start")
	return ""
}

// runProcess runs this test in another process and returns what it saw, by
// limit.
func runProcess(t *testing.T, socket string, seed, takes int) (seen [][]oracle.Event) {
	self, err := os.Executable()
	if err != nil {
		t.Error(err)
		return nil
	}
	cmd := exec.Command(self, "-test.run=^TestEnvelopeProcesses$")
	cmd.Env = append(os.Environ(), processSocket+"="+socket, processSeed+"="+strconv.Itoa(seed), processTakes+"="+strconv.Itoa(takes))
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Error(err)
		return nil
	}
	err = gob.NewDecoder(out).Decode(&seen)
	rest, _ := io.ReadAll(out)
	if waited := cmd.Wait(); err != nil || waited != nil {
		t.Errorf("a process: %v, %v\n%s%s", err, waited, said.Bytes(), rest)
	}
	return seen
}

// beProcess takes from every limit, from several goroutines, and writes what it
// saw to its output.
func beProcess(t *testing.T, socket string) {
	seed, _ := strconv.ParseUint(os.Getenv(processSeed), 10, 64)
	takes, _ := strconv.Atoi(os.Getenv(processTakes))
	store, err := redisstore.New(redisstore.Options{URL: "unix://" + socket, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r := newContest(t, real{time.Now()}, store, everyKind...)
	r.slop, r.tick = int64(time.Microsecond), int64(time.Microsecond) // the server's clock is this machine's, in whole ones
	bounds := make([]stint.Bound, len(r.limits))
	for i, l := range r.limits {
		if bounds[i], err = store.Bind(fmt.Sprint(i), l); err != nil {
			t.Fatal(err)
		}
	}
	const callers = 16 // enough for requests to be batched
	r.race(callers, takes/callers, seed, func(rng *rand.Rand) []seen {
		k, key, cost := rng.IntN(len(bounds)), []string{"a", "a", "b", "c"}[rng.IntN(4)], 1+rng.Int64N(3)
		return r.took([]string{key}, []int{k}, cost, func() (stint.Decision, error) {
			return bounds[k].Decide(context.Background(), meter.OpTake, key, cost)
		})
	})
	if err := gob.NewEncoder(os.Stdout).Encode(r.seen); err != nil {
		t.Fatal(err)
	}
}
