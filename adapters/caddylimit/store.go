package caddylimit

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/caddyserver/caddy/v2"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/redisstore"
)

// stores are those in use, by what they hold: handlers of a configuration that is
// loaded anew find those of the one before.
var stores = caddy.NewUsagePool()

// A store is what keys have used, of one handler in memory, or of all on one
// Redis.
type store struct {
	name   string      // in stores
	shared stint.Store // nil without Redis
	local  *memstore.Store
}

// Destruct implements [caddy.Destructor].
func (s *store) Destruct() error {
	var err error
	if s.shared != nil {
		err = s.shared.Close()
	}
	return errors.Join(err, s.local.Close())
}

// openStore returns the store of a handler, which closes it.
func openStore(h *Handler) (*store, error) {
	replacer := caddy.NewReplacer()
	url, err := replacer.ReplaceOrErr(h.Store, true, true)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	name := strconv.Itoa(h.MaxKeys) + " " + h.Name + " " + url
	one, _, err := stores.LoadOrNew(name, func() (caddy.Destructor, error) { return newStore(name, url, h) })
	if err != nil {
		return nil, err
	}
	return one.(*store), nil
}

func newStore(name, url string, h *Handler) (*store, error) {
	s := &store{name: name, local: memstore.New(memstore.Options{MaxKeys: h.MaxKeys})}
	if url == "" {
		return s, nil
	}
	if _, err := redisstore.ParseURL(url); err != nil { // the error might show a password
		return nil, errors.New("store: want redis://host:6379, with user:password@ and /db as needed, rediss:// for TLS, or unix:///run/redis.sock")
	}
	host, _ := os.Hostname() // only people read it
	shared, err := redisstore.New(redisstore.Options{URL: url, Tag: policy.Tag, Modes: redisstore.Modes{Nodes: h.Nodes, NodeID: host}})
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s.shared = shared
	return s, nil
}

// policy binds rules to the store.
func (s *store) policy(rules *policy.Rules, h *Handler) (*policy.Policy, error) {
	o := policy.Options{Secret: []byte(caddy.NewReplacer().ReplaceAll(h.Secret, ""))}
	if n := len(o.Secret); n > 0 && n < 16 {
		return nil, fmt.Errorf("secret: %d bytes: at least 16, such as openssl rand -hex 32 makes", n)
	}
	if s.shared == nil {
		return policy.New(s.local, rules, o)
	}
	o.Local, o.Nodes = s.local, h.Nodes
	p, err := policy.New(s.shared, rules, o)
	if err != nil {
		return nil, err
	}
	counted := func(n int) {
		if err := p.SetNodes(n); err != nil {
			h.log.Warn("the part of a limit that this process holds while the store fails could not be changed", "name", h.Name, "error", err)
		}
	}
	if h.Nodes > 0 {
		counted = nil // others may count
	}
	s.shared.(*redisstore.Store).CountNodes(counted)
	return p, nil
}

// close lets go of the store.
func (s *store) close() error {
	if s == nil {
		return nil
	}
	_, err := stores.Delete(s.name)
	return err
}
