package caddylimit

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/redisstore"
)

// storeTimeout is the Options.Timeout of stores in Redis; 0 is the default.
var storeTimeout time.Duration

// A server is a Redis that all handlers of the process share, so that the process counts once among
// those that use it.
type server struct {
	*redisstore.Store
	name string // in servers
	told int    // configured number of processes that share it; 0 if they are counted

	mu       sync.Mutex
	counted  int // counted processes; 0 until there is a count
	policies map[*policy.Policy]*slog.Logger
}

var (
	_ policy.ModeStore = (*server)(nil)
	_ policy.Checker   = (*server)(nil)
)

// openServer returns the server at a URL. The caller must release it.
func openServer(url string, nodes int) (*server, error) {
	if _, err := redisstore.ParseURL(url); err != nil { // the error itself might show a password
		return nil, errors.New("store: want redis://host:6379, with user:password@ and /db as needed, rediss:// for TLS, or unix:///run/redis.sock")
	}
	name := strconv.Itoa(nodes) + " " + url
	one, _, err := servers.LoadOrNew(name, func() (caddy.Destructor, error) {
		host, _ := os.Hostname() // the name is only for people, so an error is ignored
		shared, err := redisstore.New(redisstore.Options{
			URL: url, Tag: policy.Tag, Timeout: storeTimeout, Modes: redisstore.Modes{Nodes: nodes, NodeID: host},
		})
		if err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		s := &server{Store: shared, name: name, told: nodes, policies: make(map[*policy.Policy]*slog.Logger)}
		if nodes > 0 {
			shared.CountNodes(nil) // other processes may count
		} else {
			shared.CountNodes(s.count)
		}
		return s, nil
	})
	if err != nil {
		return nil, err
	}
	return one.(*server), nil
}

// Destruct implements [caddy.Destructor].
func (s *server) Destruct() error { return s.Close() }

// release closes the server once no handler uses it.
func (s *server) release() error {
	if s == nil {
		return nil
	}
	_, err := servers.Delete(s.name)
	return err
}

// Check implements [policy.Checker].
func (s *server) Check(mode string, limits ...stint.Limit) error {
	if mode == redisstore.Share.String() && s.told == 0 {
		return errors.New("mode share: each process holds its part: nodes says how many there are")
	}
	return s.Store.Check(mode, limits...)
}

// count records how many processes share the server.
func (s *server) count(nodes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted = nodes
	for p, log := range s.policies {
		part(p, nodes, log)
	}
}

// add makes a policy hold its share of each limit while the server is down.
func (s *server) add(p *policy.Policy, log *slog.Logger) {
	if s.told > 0 {
		return // the policy does that itself
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policies[p] = log
	if s.counted > 0 {
		part(p, s.counted, log)
	}
}

// remove undoes add.
func (s *server) remove(p *policy.Policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.policies, p)
}

func part(p *policy.Policy, nodes int, log *slog.Logger) {
	if err := p.SetNodes(nodes); err != nil {
		log.Warn("the part of a limit that this process holds while the store fails could not be changed", "error", err)
	}
}
