package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// names are the names of keys in Redis:
//
//	stint:{key}:limit                  the state of a key under a limit
//	stint:{tag}:limit:key              the same, where the tag is not the key
//	stint:{key}::generation:limit      of its reservations
//	stint:{…}::reservation:token       a reservation, in the slot of its layers
//	stint:{…}::overflow:limit          the state of newcomers, in the slot of their keys
//	stint:{…}::charged:id              there if keys of the slot have been charged with their debts
//	stint::nodes                       the processes that share the store
//
// Colons of limits' names are escaped, so the first after the braces ends the
// name, and no name is empty. Keys and tags that are long, that hold a brace or
// that look like a hash are hashed.
type names struct {
	prefix string
	tag    func(key string) string
	secret []byte
}

// longest is how long a key or tag may be to stand as it is: a hash is 23
// bytes, and what is not much longer is better read.
const longest = 64

// plain returns what stands for a key or tag.
func (n *names) plain(s string) string {
	if len(n.secret) == 0 && s != "" && len(s) <= longest && s[0] != '#' && !strings.ContainsAny(s, "{}") {
		return s
	}
	var sum []byte
	if len(n.secret) > 0 {
		mac := hmac.New(sha256.New, n.secret)
		mac.Write([]byte(s))
		sum = mac.Sum(nil)
	} else {
		whole := sha256.Sum256([]byte(s))
		sum = whole[:]
	}
	return "#" + base64.RawURLEncoding.EncodeToString(sum[:16])
}

// place returns where a key's names begin and how they end: around the name of
// a limit.
func (n *names) place(key string) (begin, end string) {
	tag := key
	if n.tag != nil {
		tag = n.tag(key)
	}
	if tag != key {
		end = ":" + n.plain(key)
	}
	return n.prefix + ":{" + n.plain(tag) + "}:", end
}

// state returns the key of a state, generation that of its reservations.
func state(begin, end string, l *limit) string      { return begin + l.segment + end }
func generation(begin, end string, l *limit) string { return begin + ":generation:" + l.segment + end }

// reservation returns the key of a reservation in a slot.
func (n *names) reservation(id string, slot uint16) string {
	return n.prefix + ":{" + filler(slot) + "}::reservation:" + id
}

// charged returns the key of what has been charged under an id in a slot.
func (n *names) charged(id string, slot uint16) string {
	return n.prefix + ":{" + filler(slot) + "}::charged:" + id
}

// probe returns a key in a slot that nobody writes.
func (n *names) probe(slot uint16) string { return n.prefix + ":{" + filler(slot) + "}::probe" }

// nodes returns the key of the processes that are counted.
func (n *names) nodes() string { return n.prefix + "::nodes" }

// escape returns a limit's name without colons.
func escape(name string) string {
	return strings.NewReplacer("%", "%25", ":", "%3A").Replace(name)
}
