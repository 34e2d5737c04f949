package caddylimit

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/caddyserver/caddy/v2"

	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
)

// stores and servers are the stores and servers in use. When Caddy reloads its configuration, the
// new handlers find those of the old ones.
var stores, servers = caddy.NewUsagePool(), caddy.NewUsagePool()

// A store is the state of keys under one handler: in the process, and on a server that other
// processes share.
type store struct {
	name   string // in stores
	local  *memstore.Store
	server *server // nil without Redis
}

// Destruct implements [caddy.Destructor].
func (s *store) Destruct() error {
	return errors.Join(s.server.release(), s.local.Close())
}

// openStore returns the store of a handler, and the handler must close it.
func openStore(h *Handler) (*store, error) {
	replacer := caddy.NewReplacer()
	url, err := replacer.ReplaceOrErr(h.Store, true, true)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	name := strconv.Itoa(h.MaxKeys) + " " + strconv.Itoa(h.Nodes) + " " + h.Name + " " + url
	one, _, err := stores.LoadOrNew(name, func() (caddy.Destructor, error) {
		s := &store{name: name}
		if url != "" {
			var err error
			if s.server, err = openServer(url, h.Nodes); err != nil {
				return nil, err
			}
		}
		s.local = memstore.New(memstore.Options{MaxKeys: h.MaxKeys})
		return s, nil
	})
	if err != nil {
		return nil, err
	}
	return one.(*store), nil
}

// bind returns a policy of rules on the store. Call unbind to close it.
func (s *store) bind(rules *policy.Rules, h *Handler) (*policy.Policy, error) {
	o := policy.Options{Secret: []byte(caddy.NewReplacer().ReplaceAll(h.Secret, ""))}
	if n := len(o.Secret); n > 0 && n < 16 {
		return nil, fmt.Errorf("secret: %d bytes: at least 16, such as openssl rand -hex 32 makes", n)
	}
	if s.server == nil {
		return policy.New(s.local, rules, o)
	}
	o.Local, o.Nodes = s.local, h.Nodes
	p, err := policy.New(s.server, rules, o)
	if err != nil {
		return nil, err
	}
	s.server.add(p, h.log)
	return p, nil
}

// unbind closes a policy.
func (s *store) unbind(p *policy.Policy) {
	if s.server != nil {
		s.server.remove(p)
	}
	p.Close()
}

// close releases the store.
func (s *store) close() error {
	if s == nil {
		return nil
	}
	_, err := stores.Delete(s.name)
	return err
}
