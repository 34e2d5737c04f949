package claims

import (
	"crypto/sha256"
	"sync"
)

const (
	// mostKept is how many results are kept, and mostBytes about how many bytes they may take.
	mostKept  = 10_000
	mostBytes = 16 << 20
)

// A tokenID is a hash of a token, from which the token cannot be recovered.
type tokenID [sha256.Size]byte

func idOf(token string) tokenID { return sha256.Sum256([]byte(token)) }

// kept holds the claims of tokens that one set of keys has verified. Tokens that do not verify are
// not kept, or a client could displace the others with them. It may be used from many goroutines at
// once.
type kept struct {
	mu    sync.Mutex
	of    map[tokenID]*content
	bytes int
}

// find returns the claims of a token if it is kept and has not expired.
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

// add keeps the claims of a token. If there is no room, it drops others at random.
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

// size returns about how many bytes the result takes.
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
