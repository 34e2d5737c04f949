package plan

// clients gives each key a dense number, in the order in which keys are first seen, so that the
// state of clients can be a slice.
type clients struct {
	ids    map[string]uint32
	keys   []string
	length int // bytes of all keys
}

func newClients() *clients { return &clients{ids: make(map[string]uint32)} }

// len returns how many keys there are.
func (c *clients) len() int { return len(c.keys) }

// key returns the key with a number.
func (c *clients) key(id uint32) string { return c.keys[id] }

// number returns the number of a key. A new key gets a new number.
func (c *clients) number(key []byte) (id uint32, fresh bool) {
	if id, ok := c.ids[string(key)]; ok {
		return id, false
	}
	id = uint32(len(c.keys))
	c.keys = append(c.keys, string(key))
	c.ids[c.keys[id]] = id
	c.length += len(key)
	return id, true
}

// bytes returns about how much memory the keys and their numbers take.
func (c *clients) bytes() int {
	const each = 16 + 32 // the string header in keys, and an entry in ids
	return c.length + each*len(c.keys)
}
