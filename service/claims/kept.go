package claims

import (
	"crypto/sha256"
	"sync"
)

const (
	// mostKept is how many results are kept, mostBytes about how many bytes they take.
	mostKept  = 10_000
	mostBytes = 16 << 20
)

// A tokenID stands for a token, which nobody can tell from it.
type tokenID [sha256.Size]byte

func idOf(token string) tokenID { return sha256.Sum256([]byte(token)) }

// kept are the claims of tokens that have verified by one set of keys. What does not
// verify is not kept: a client could put out the others with it. It may be used
// from many goroutines at once.
type kept struct {
	mu    sync.Mutex
	of    map[tokenID]*content
	bytes int
}

// find returns the claims of a token that has not expired by now.
func (k *kept) find(id tokenID, now float64) (Claims, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, ok := k.of[id]
	switch {
	case !ok:
		return nil, false
	case now >= c.expires+skew:
		k.drop(id, c)
		return nil, false
	}
	return c.claims, true
}

// add keeps the claims of a token, in the place of any others if there is no room.
func (k *kept) add(id tokenID, c *content) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, there := k.of[id]; there {
		return
	}
	if k.of == nil {
		k.of = make(map[tokenID]*content)
	}
	k.bytes += c.size()
	for other, was := range k.of {
		if len(k.of) < mostKept && k.bytes <= mostBytes {
			break
		}
		k.drop(other, was)
	}
	k.of[id] = c
}

func (k *kept) drop(id tokenID, c *content) {
	delete(k.of, id)
	k.bytes -= c.size()
}

// size is about how many bytes the result takes.
func (c *content) size() int {
	size := 256
	for name, value := range c.claims {
		size += 64 + len(name) + len(value)
	}
	for _, one := range c.audience {
		size += 16 + len(one)
	}
	return size
}
