package chaos_test

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/stint-dev/stint/internal/testkit/redistest"
)

// A fault is what happens, and how much more than a limit's envelope may pass
// meanwhile, in limits: what a server forgets passes again, at most a limit's
// worth of a key; and while calls fail each process lets its part pass by itself,
// at most a limit together, which may add up with what the server let pass just
// before (docs/REDIS.md, "When Redis fails").
type fault struct {
	name     string
	promised int64
	lasts    time.Duration
	begin    func(s *site)
	end      func(s *site)
}

var faults = []fault{
	{"kill -9 of a master", 2, 2500 * time.Millisecond, killMaster, (*site).revive},
	{"replies cut in the middle", 1, time.Second, (*site).cut, (*site).mend},
	{"FLUSHALL", 1, 500 * time.Millisecond, flush, nil},
	{"SIGSTOP of a master, short", 1, 600 * time.Millisecond, stopMaster, (*site).goOn},
	{"SIGSTOP until another is master", 2, 3500 * time.Millisecond, deposeMaster, (*site).goOn},
	{"a master alone with its clients", 2, 3500 * time.Millisecond, isolateMaster, (*site).join},
	{"planned failover", 1, time.Second, failover, nil},
	{"resharding", 1, 500 * time.Millisecond, reshard, nil},
	{"replies 60 ms late", 1, time.Second, (*site).delay, (*site).mend},
	{"memory full", 1, time.Second, fill, empty},
	{"clock 2 s back", 0, time.Second, back, nil},
	{"clock 2 s forth", 2, time.Second, forth, nil}, // which nodes may take for silence
	{"scripts lost, again and again", 1, time.Second, forgetScripts, nil},
	{"kill -9 of a process", 0, time.Second, killProcess, (*site).restart},
	{"SIGSTOP of a process", 1, 1500 * time.Millisecond, stopProcess, (*site).resumeProcess},
	{"rolling restart", 0, time.Second, restartAll, nil},
	{"rolling deploy of other limits", 0, time.Second, deployTight, deployLoose},
}

// master draws one of the masters that answer.
func (s *site) master() *redistest.Server {
	for {
		if all := s.cluster.Masters(); len(all) >= 3 {
			return all[s.rnd.IntN(len(all))]
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func killMaster(s *site) {
	s.hasty()
	s.struck = s.master()
	s.struck.Kill()
}

// hasty has nodes miss who is silent for a second, until they are settled.
func (s *site) hasty() { s.cluster.NodeTimeout(s, time.Second) }

// revive starts again, empty, what was killed: as a replica, if another has taken
// its place.
func (s *site) revive() { s.struck.Restart(s) }

func stopMaster(s *site) {
	s.struck = s.master()
	s.struck.Signal(s, syscall.SIGSTOP)
}

func deposeMaster(s *site) {
	s.hasty()
	stopMaster(s)
}

// isolateMaster leaves a master alone: it decides until it has missed the others for as
// long as nodes may be silent, and what it decides is forgotten.
func isolateMaster(s *site) {
	s.hasty()
	s.cluster.Part(s.master())
}

func (s *site) join() { s.cluster.Join() }

func (s *site) goOn() { s.struck.Signal(s, syscall.SIGCONT) }

func (s *site) cut() {
	s.struck = s.master()
	s.cluster.Way(s.struck, redistest.Fault{CutEvery: 7})
}

func (s *site) delay() {
	s.struck = s.master()
	s.cluster.Way(s.struck, redistest.Fault{Delay: 60 * time.Millisecond})
}

func (s *site) mend() { s.cluster.Way(s.struck, redistest.Fault{}) }

func flush(s *site) {
	for _, m := range s.cluster.Masters() {
		s.try(m, "flushall")
	}
}

// forgetScripts has all masters forget their scripts ten times, while calls run them.
func forgetScripts(s *site) {
	for range 10 {
		for _, m := range s.cluster.Masters() {
			s.try(m, "script", "flush")
		}
	}
}

// failover has a replica take its master's place, in agreement with it.
func failover(s *site) {
	for _, n := range s.cluster.Nodes {
		if n.Role() == "slave" {
			s.try(n, "cluster", "failover")
			return
		}
	}
}

// reshard moves slots from a master to another while they are asked for.
func reshard(s *site) {
	all := s.cluster.Masters()
	if len(all) < 2 {
		return
	}
	s.rnd.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	id := func(n *redistest.Server) string { return s.try(n, "cluster", "myid") }
	args := []string{"--cluster", "reshard", all[0].Addr, "--cluster-from", id(all[0]), "--cluster-to", id(all[1]), "--cluster-slots", "300", "--cluster-yes"}
	if out, err := exec.Command("redis-cli", args...).CombinedOutput(); err != nil {
		s.Logf("resharding ended early: %v: %.200s", err, out)
	}
}

func fill(s *site)  { s.everywhere("config", "set", "maxmemory", "1") }
func empty(s *site) { s.everywhere("config", "set", "maxmemory", "0") }

func back(s *site) { s.clock.Step(s, -2*time.Second) }

func forth(s *site) {
	s.hasty()
	s.clock.Step(s, 2*time.Second)
}

func (s *site) everywhere(args ...string) {
	for _, n := range s.cluster.Nodes {
		s.try(n, args...)
	}
}

// try asks a server that may not answer.
func (s *site) try(n *redistest.Server, args ...string) string {
	host, port, _ := strings.Cut(n.Addr, ":")
	out, err := exec.Command("redis-cli", append([]string{"-h", host, "-p", port}, args...)...).CombinedOutput()
	if err != nil {
		s.Logf("%s: %v: %v: %s", n.Addr, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// settled waits until the cluster is whole: three masters, each with a replica that
// has what it has.
func (s *site) settled() {
	end := time.Now().Add(30 * time.Second)
	for wrong := "?"; wrong != ""; time.Sleep(50 * time.Millisecond) {
		if wrong = s.wrong(); wrong != "" && time.Now().After(end) {
			s.Fatalf("the cluster does not become whole: %s", wrong)
		}
	}
}

func (s *site) wrong() string {
	if n := len(s.cluster.Masters()); n != 3 {
		return fmt.Sprint(n, " masters")
	}
	for _, n := range s.cluster.Nodes {
		host, port, _ := strings.Cut(n.Addr, ":")
		out, err := exec.Command("redis-cli", "-h", host, "-p", port, "cluster", "info").Output()
		if err != nil || !strings.Contains(string(out), "cluster_state:ok") {
			return n.Addr + " says that the cluster is not well"
		}
		out, err = exec.Command("redis-cli", "-h", host, "-p", port, "role").Output()
		if err != nil || strings.HasPrefix(string(out), "slave") && !strings.Contains(string(out), "connected") {
			return n.Addr + " is not linked to its master"
		}
	}
	return ""
}
