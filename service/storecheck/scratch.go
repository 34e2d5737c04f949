package storecheck

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/stint-dev/stint/redisstore"
)

// A Scratch is a store in a Redis that others use too, of which Remove leaves
// nothing behind: keys have a random prefix, and the name of every key that was
// handed to the store's script is remembered. So it is for thousands of keys, not
// for millions.
type Scratch struct {
	*redisstore.Store
	// Prefix is what the names of its keys begin with, and no others.
	Prefix string

	client redis.UniversalClient
	driver *noting
	more   []*redisstore.Store
}

// OpenScratch returns a store on a client, which stays the caller's to close. Prefix
// and driver of the options are set here.
func OpenScratch(client redis.UniversalClient, o redisstore.Options) (*Scratch, error) {
	noting := &noting{Driver: redisstore.NewDriver(client), keys: make(map[string]bool)}
	o.Driver, o.Prefix = noting, "stint:scratch-"+strings.ToLower(rand.Text()[:10])
	store, err := redisstore.New(o)
	if err != nil {
		return nil, err
	}
	return &Scratch{Store: store, Prefix: o.Prefix, client: client, driver: noting}, nil
}

// Another opens a further store on the same keys, as another process would. It
// is closed by Remove too.
func (s *Scratch) Another(o redisstore.Options) (*redisstore.Store, error) {
	o.Driver, o.Prefix = s.driver, s.Prefix
	store, err := redisstore.New(o)
	if err == nil {
		s.more = append(s.more, store)
	}
	return store, err
}

// Remove closes the store and removes its keys.
func (s *Scratch) Remove(ctx context.Context) error {
	failed := s.Close()
	for _, one := range s.more {
		failed = errors.Join(failed, one.Close())
	}
	s.driver.mu.Lock()
	defer s.driver.mu.Unlock()
	for key := range s.driver.keys {
		if err := s.client.Del(ctx, key).Err(); err != nil {
			return errors.Join(failed, err)
		}
		delete(s.driver.keys, key)
	}
	return failed
}

// noting is a driver that notes the keys of scripts.
type noting struct {
	redisstore.Driver
	mu   sync.Mutex
	keys map[string]bool
}

// EvalSHA implements [redisstore.Driver].
func (n *noting) EvalSHA(ctx context.Context, sha string, keys, args []string) (any, error) {
	n.note(keys)
	return n.Driver.EvalSHA(ctx, sha, keys, args)
}

// Eval implements [redisstore.Driver].
func (n *noting) Eval(ctx context.Context, script string, keys, args []string) (any, error) {
	n.note(keys)
	return n.Driver.Eval(ctx, script, keys, args)
}

// Slots implements [redisstore.Topology].
func (n *noting) Slots(ctx context.Context) ([]redisstore.SlotRange, error) {
	return n.Driver.(redisstore.Topology).Slots(ctx)
}

func (n *noting) note(keys []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, key := range keys {
		n.keys[strings.Clone(key)] = true
	}
}
