package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/freeport"
)

// TestChaosInFlight does each fault once to three stint proxy processes that share a limit
// in flight. The server behind them counts how many requests of a user it has at once. When
// all is over, every place is free again.
func TestChaosInFlight(t *testing.T) {
	if os.Getenv("STINT_CHAOS") == "" && os.Getenv("STINT_SOAK") == "" {
		t.Skip("it takes three minutes: make chaos")
	}
	s := openCluster(t, 1)
	up := &upstream{now: map[string]int{}}
	server := httptest.NewServer(up)
	defer server.Close()
	s.proxies(server.URL, 3)
	stop := s.crowd()
	fmt.Print("\n| fault | requests | most in flight | promised |\n|---|---:|---:|---:|\n")
	for _, f := range append([]fault{calm}, append(faults, calm)...) {
		if strings.HasPrefix(f.name, "rolling") { // of the other rules
			continue
		}
		up.count()
		done := s.suffer(f)
		passed, most := up.count()
		promised := atOnce + int(done.allowed(atOnce))
		fmt.Printf("| %s | %d | %d | %d |\n", f.name, passed, most, promised)
		if most > promised || passed == 0 {
			t.Errorf("%s: %d requests, %d of a user at once, at most %d are promised", f.name, passed, most, promised)
		}
		time.Sleep(5 * time.Second) // in which each process says again what it holds
	}
	stop()
	time.Sleep(lease)
	up.hold = time.Second
	for u := range users {
		var all sync.WaitGroup
		for i := range atOnce {
			all.Go(func() {
				if got := s.through(http.DefaultClient, s.processes[i%len(s.processes)], u); got != http.StatusOK {
					t.Errorf("user %d gets %d for one of %d places, when nobody holds any", u, got, atOnce)
				}
			})
		}
		all.Wait()
	}
}

const (
	atOnce = 10 // requests in flight of a user
	lease  = 10 * time.Second
)

// An upstream is the server behind the proxies.
type upstream struct {
	mu           sync.Mutex
	now          map[string]int // in flight, by user
	most, passed int            // since they were counted
	hold         time.Duration  // how long a request takes, beside up to 60 ms
}

func (u *upstream) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	user := r.Header.Get("X-User")
	u.mu.Lock()
	u.passed++
	u.now[user]++
	u.most = max(u.most, u.now[user])
	u.mu.Unlock()
	time.Sleep(u.hold + time.Duration(rand.IntN(60))*time.Millisecond)
	u.mu.Lock()
	u.now[user]--
	u.mu.Unlock()
}

func (u *upstream) count() (passed, most int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	passed, most = u.passed, u.most
	u.passed, u.most = 0, 0
	return passed, most
}

// proxies builds stint and starts n proxies of a server.
func (s *site) proxies(server string, n int) {
	s.build()
	rules := filepath.Join(s.TempDir(), "stint.yaml")
	if err := os.WriteFile(rules, fmt.Appendf(nil, "rules:\n  - {name: flight, key: [header.x-user], limits: %d in flight}\n", atOnce), 0o644); err != nil {
		s.Fatal(err)
	}
	for range n {
		p := &process{addr: freeport.Addr(s), proxy: freeport.Addr(s)}
		p.args = []string{"proxy", rules, "--upstream", server, "--listen", p.proxy, "--admin", p.addr, "--max-in-flight-per-address", "0"}
		s.processes = append(s.processes, p)
		s.start(p)
	}
	for _, p := range s.processes {
		s.ready(p)
	}
}

// crowd has callers send more requests through all proxies than may be in flight, until
// stop.
func (s *site) crowd() (stop func()) {
	var done atomic.Bool
	var callers sync.WaitGroup
	for _, p := range s.processes {
		for range 24 {
			callers.Go(func() {
				client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{}}
				defer client.CloseIdleConnections()
				for !done.Load() {
					switch got := s.through(client, p, rand.IntN(users)); got {
					case http.StatusOK:
					case 0, http.StatusTooManyRequests, http.StatusServiceUnavailable: // 503 after a pause of the process
						time.Sleep(10 * time.Millisecond)
					default:
						s.Errorf("%s: status %d", p.proxy, got)
					}
				}
			})
		}
	}
	return func() { done.Store(true); callers.Wait() }
}

// through sends a request through a proxy, and returns its status; 0 without an answer.
func (s *site) through(client *http.Client, p *process, user int) int {
	r, err := http.NewRequest(http.MethodGet, "http://"+p.proxy+"/", nil)
	if err != nil {
		s.Error(err)
		return 0
	}
	r.Header.Set("X-User", fmt.Sprint("user", user))
	resp, err := client.Do(r)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}
