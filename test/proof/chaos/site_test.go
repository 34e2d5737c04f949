package chaos_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/redistest"
)

// The rules: requests under one limit, and under two whose keys are on different
// nodes.
const rules = `attributes: [user, team]
rules:
  - {name: one, match: {path: /one}, key: [user], limits: "%v"}
  - {name: user, match: {path: /two}, key: [user], limits: "%v"}
  - {name: team, match: {path: /two}, key: [team], limits: "%v"}
`

// A form is the rules' limits.
type form map[string]stint.Limit

// The loose form is in force, but for what a rolling deploy does. The tight form has
// other counts and bursts and the same periods, so that both share the states of keys:
// together they are held to the greater of both.
var (
	loose = form{"one": stint.PerSecond(60).WithBurst(60), "user": stint.PerSecond(40).WithBurst(40), "team": stint.PerSecond(60).WithBurst(60)}
	tight = form{"one": stint.PerSecond(30).WithBurst(30), "user": stint.PerSecond(20).WithBurst(20), "team": stint.PerSecond(30).WithBurst(30)}
)

// Beside those who ask for more than they may have there are some who ask for far
// less, one in ten of it, each from one process: they are denied only for a reason.
const users, teams, modest = 4, 2, 3

const modestPause = 150 * time.Millisecond

// A site is what is done to: servers, processes that share them, and callers.
type site struct {
	testing.TB
	clock   *redistest.Clock
	cluster *redistest.Divided
	rnd     *rand.Rand
	struck  *redistest.Server // by the last fault

	binary    string
	processes []*process
	killed    int // the process that the last fault ended or stopped

	mu     sync.Mutex
	events []event
	unjust []event // denials of those who ask for little

	resting                    atomic.Bool // those who ask for more than they may have do not ask
	asked, refused, unanswered atomic.Int64
}

// A process is a stint serve with a rules file of its own, or a stint proxy.
type process struct {
	addr, rules string
	proxy       string // where a proxy listens
	args        []string
	cmd         *exec.Cmd
	without     int64 // requests that were answered without the store before it was started again
}

// An event is a request that was let through, by the limits that it was held to.
type event struct {
	begun, ended time.Time
	limits       [][2]string // rule and key
}

// build builds stint.
func (s *site) build() {
	s.binary = filepath.Join(s.TempDir(), "stint")
	build := exec.Command("go", "build", "-trimpath", "-o", s.binary, "./stint")
	build.Dir = "../../../cmd"
	if out, err := build.CombinedOutput(); err != nil {
		s.Fatalf("go build: %v\n%s", err, out)
	}
}

// serve builds stint and starts n processes.
func (s *site) serve(n int) {
	s.build()
	for i := range n {
		p := &process{addr: freeport.Addr(s), rules: filepath.Join(s.TempDir(), fmt.Sprint("stint", i, ".yaml"))}
		p.args = []string{"serve", p.rules, "--http", p.addr}
		s.processes = append(s.processes, p)
	}
	for _, p := range s.processes {
		s.write(p, loose)
		s.start(p)
	}
	for _, p := range s.processes {
		s.ready(p)
	}
}

// write puts a form into the rules file of a process that does not run.
func (s *site) write(p *process, f form) {
	if err := os.WriteFile(p.rules, fmt.Appendf(nil, rules, f["one"], f["user"], f["team"]), 0o644); err != nil {
		s.Fatal(err)
	}
}

func (s *site) start(p *process) {
	store := "redis://" + strings.Join(s.cluster.Addrs(), ",")
	p.cmd = exec.Command(s.binary, append(p.args, "--store", store, "--store-timeout", "100ms")...)
	if err := p.cmd.Start(); err != nil {
		s.Fatal(err)
	}
	started := p.cmd
	s.Cleanup(func() { _ = started.Process.Kill(); _ = started.Wait() })
}

// ready waits until a process has counted all of them.
func (s *site) ready(p *process) {
	for end := time.Now().Add(30 * time.Second); s.metric(p, "stint_store_nodes") != float64(len(s.processes)); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("%s counts %v processes", p.addr, s.metric(p, "stint_store_nodes"))
		}
	}
}

// metric returns the sum of a metric over its labels; -1 if the process does not
// say.
func (s *site) metric(p *process, name string) float64 {
	resp, err := http.Get("http://" + p.addr + "/metrics")
	if err != nil {
		return -1
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	sum := 0.0
	for line := range strings.Lines(string(body)) {
		if !strings.HasPrefix(line, name+" ") && !strings.HasPrefix(line, name+"{") {
			continue
		}
		n, _ := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(strings.TrimSpace(line), ' ')+1:]), 64)
		sum += n
	}
	return sum
}

func killProcess(s *site) {
	s.killed = s.rnd.IntN(len(s.processes))
	p := s.processes[s.killed]
	s.keepWithout(p)
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (s *site) restart() {
	s.start(s.processes[s.killed])
}

// stopProcess stops a process in the middle of its requests; when it goes on, the
// time that these had is over.
func stopProcess(s *site) {
	s.killed = s.rnd.IntN(len(s.processes))
	s.signal(syscall.SIGSTOP)
}

func (s *site) resumeProcess() { s.signal(syscall.SIGCONT) }

func (s *site) signal(sig syscall.Signal) {
	if err := s.processes[s.killed].cmd.Process.Signal(sig); err != nil {
		s.Fatal(err)
	}
}

// load has callers ask all processes for more than the limits let through, until
// stop.
func (s *site) load() (stop func()) {
	done := make(chan struct{})
	var callers sync.WaitGroup
	for i, p := range s.processes {
		for c := range 4 {
			rnd := rand.New(rand.NewPCG(uint64(i), uint64(c)))
			callers.Go(func() {
				client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{}}
				defer client.CloseIdleConnections()
				for {
					select {
					case <-done:
						return
					default:
						s.ask(client, p, rnd)
					}
				}
			})
		}
		callers.Go(func() { s.askLittle(done, p, fmt.Sprint("modest", i%modest)) })
	}
	return func() { close(done); callers.Wait() }
}

// askLittle asks for far less than the limit lets through, until done.
func (s *site) askLittle(done <-chan struct{}, p *process, user string) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for {
		select {
		case <-done:
			return
		case <-time.After(modestPause):
			s.post(client, p, map[string]string{"user": user, "team": "", "path": "/one"}, [][2]string{{"one", user}}, true)
		}
	}
}

func (s *site) ask(client *http.Client, p *process, rnd *rand.Rand) {
	if s.resting.Load() {
		time.Sleep(5 * time.Millisecond)
		return
	}
	user, team := fmt.Sprint("user", rnd.IntN(users)), fmt.Sprint("team", rnd.IntN(teams))
	attributes, limits := map[string]string{"user": user, "team": team, "path": "/one"}, [][2]string{{"one", user}}
	if rnd.IntN(2) == 0 {
		attributes["path"], limits = "/two", [][2]string{{"user", user}, {"team", team}}
	}
	s.post(client, p, attributes, limits, false)
	time.Sleep(5 * time.Millisecond)
}

// post asks a process, and notes what it says.
func (s *site) post(client *http.Client, p *process, attributes map[string]string, limits [][2]string, modest bool) {
	body, _ := json.Marshal(map[string]any{"attributes": attributes})
	e := event{begun: time.Now(), limits: limits}
	resp, err := client.Post("http://"+p.addr+"/v1/check", "application/json", bytes.NewReader(body))
	s.asked.Add(1)
	if err != nil {
		s.unanswered.Add(1)
		time.Sleep(20 * time.Millisecond)
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	e.ended = time.Now()
	switch resp.StatusCode {
	case http.StatusOK:
		s.mu.Lock()
		s.events = append(s.events, e)
		s.mu.Unlock()
	case http.StatusTooManyRequests:
		s.refused.Add(1)
		if modest {
			s.mu.Lock()
			s.unjust = append(s.unjust, e)
			s.mu.Unlock()
		}
	default:
		s.Errorf("%s: %s", p.addr, resp.Status)
	}
}
