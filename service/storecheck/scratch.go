package storecheck

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/rueidis"

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

	client *noting
	more   []*redisstore.Store
}

// OpenScratch returns a store on a client, which stays the caller's to close. Prefix
// and client of the options are set here.
func OpenScratch(client rueidis.Client, o redisstore.Options) (*Scratch, error) {
	noting := &noting{Client: client, keys: make(map[string]bool)}
	o.Client, o.Prefix = noting, "stint:scratch-"+strings.ToLower(rand.Text()[:10])
	store, err := redisstore.New(o)
	if err != nil {
		return nil, err
	}
	return &Scratch{Store: store, Prefix: o.Prefix, client: noting}, nil
}

// Another opens a further store on the same keys, as another process would. It
// is closed by Remove too.
func (s *Scratch) Another(o redisstore.Options) (*redisstore.Store, error) {
	o.Client, o.Prefix = s.client, s.Prefix
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
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	for key := range s.client.keys {
		if err := s.client.Client.Do(ctx, s.client.B().Del().Key(key).Build()).Error(); err != nil {
			return errors.Join(failed, err)
		}
		delete(s.client.keys, key)
	}
	return failed
}

// noting is a client that notes the keys of scripts.
type noting struct {
	rueidis.Client
	mu   sync.Mutex
	keys map[string]bool
}

// Do implements [rueidis.Client].
func (n *noting) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	n.note(cmd)
	return n.Client.Do(ctx, cmd)
}

// DoMulti implements [rueidis.Client].
func (n *noting) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	for _, cmd := range multi {
		n.note(cmd)
	}
	return n.Client.DoMulti(ctx, multi...)
}

func (n *noting) note(cmd rueidis.Completed) {
	words := cmd.Commands()
	if len(words) < 3 || words[0] != "EVALSHA" && words[0] != "EVAL" {
		return
	}
	count, err := strconv.Atoi(words[2])
	if err != nil || count > len(words)-3 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, key := range words[3 : 3+count] {
		n.keys[strings.Clone(key)] = true
	}
}
