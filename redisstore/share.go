package redisstore

import (
	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/fallback"
	"github.com/stint-dev/stint/memstore"
)

// bindShares binds limits in memory, each this node's part.
func (m *modes) bindShares(name string, limits []stint.Limit) (stint.Bound, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, stint.ErrClosed
	}
	if m.local.Load() == nil {
		m.local.Store(memstore.New(memstore.Options{Now: m.store.now}))
	}
	parts := make([]stint.Limit, len(limits))
	for i, l := range limits {
		parts[i] = fallback.Share(l, int64(m.Nodes))
	}
	b := &moded{modes: m, name: name, all: make([]*single, len(limits))}
	var err error
	if b.local, err = m.local.Load().Bind(name, parts...); err != nil {
		return nil, err
	}
	for i, l := range limits {
		one := &single{modes: m, mode: Share, name: stateName(name, l), limit: l}
		if one.share, err = m.local.Load().Bind(name, parts[i]); err != nil {
			return nil, err
		}
		m.shares[one.name] = l
		b.all[i] = one
	}
	return b, nil
}

// shared returns a limit of this mode as it stands now.
func (m *modes) shared(name string) stint.Limit {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shares[name]
}
