package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"sync"
)

// names are the names of keys in Redis:
//
//	stint:{2f1}:limit:key              the state of a key under a limit
//	stint:{2f1}::open:limit:key        its open reservations
//	stint:{2f1}::ban:limit:key         its ban (lua/ban.lua)
//	stint:{2f1}::flight:limit.id:key   its units in flight (lua/inflight.lua)
//	stint:{2f1}::until:limit.id:key    until when each holder of these counts
//	stint:{2f1}::reserved:id           a reservation, in the slot of its layers
//	stint:{2f1}::overflow:limit:7      an overflow key, in the slot of the keys that share it
//	stint:{2f1}::charged:id            exists if keys of the slot were charged with their debts
//	stint::nodes                       the processes that share the store
//	stint::rules                       the hashes of their rules
//
// The text in braces, the hash tag, decides in which slot of a cluster a key lies. There
// are few tags, whatever the number of keys, so that many requests can share a call: the
// slots are divided into stretches of equal length, and a key lies in the first slot of
// the stretch that has its own slot.
//
// Colons in the names of limits are escaped, so the first colon after the braces ends the
// name, and no name is empty. A key that is long, holds a brace or looks like a hash is
// hashed.
type names struct {
	prefix string
	tag    func(key string) string
	secret []byte
	wide   int // how many slots a stretch has
	begins *[slots]string
}

// tags is how many hash tags there are. It must never change: keys would get other names.
const tags = 256

// newNames returns the names of a store with the given number of tags.
func newNames(prefix string, tag func(string) string, secret []byte, tags int) names {
	n := names{prefix: prefix, tag: tag, secret: secret, wide: slots / tags, begins: new([slots]string)}
	for slot := 0; slot < slots; slot += n.wide {
		n.begins[slot] = prefix + ":{" + filler(uint16(slot)) + "}:"
	}
	return n
}

// longest is how long a key may be without being hashed. A hash is 23 bytes; a key that is
// not much longer stays readable.
const longest = 64

// plain returns a key or tag as it is, or its hash.
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

// around returns the beginning and the end of a key's names; the name of a limit is between.
func (n *names) around(key string) (begin, end string) {
	end = n.plain(key)
	of := end
	if n.tag != nil {
		if tag := n.tag(key); tag != key {
			of = n.plain(tag)
		}
	}
	return n.begins[int(crcOf(of))%slots/n.wide*n.wide], ":" + end
}

// state returns the key of a state, opens the key of its open reservations, and banOf the
// key of its ban.
func state(begin, end string, l *limit) string { return begin + l.segment + end }
func opens(begin, end string, l *limit) string { return begin + ":open:" + l.segment + end }
func banOf(begin, end string, l *limit) string { return begin + ":ban:" + l.segment + end }

// reservation returns the key of a reservation in a slot.
func (n *names) reservation(id string, slot uint16) string {
	return n.prefix + ":{" + filler(slot) + "}::reserved:" + id
}

// charged returns the key of the record that debts of a slot were charged under an id.
func (n *names) charged(id string, slot uint16) string {
	return n.prefix + ":{" + filler(slot) + "}::charged:" + id
}

// probe returns a key in a slot. Nothing writes it.
func (n *names) probe(slot uint16) string { return n.prefix + ":{" + filler(slot) + "}::probe" }

// nodes returns the key of the processes that are counted.
func (n *names) nodes() string { return n.prefix + "::nodes" }

// rules returns the key of the rules that processes have.
func (n *names) rules() string { return n.prefix + "::rules" }

// escape returns a limit's name without colons.
func escape(name string) string {
	return strings.NewReplacer("%", "%25", ":", "%3A").Replace(name)
}

// slots is how many slots a cluster has. The slot of a key is the CRC16 (XMODEM) of the text
// between its first brace and the next.

const slots = 16384

func slotOf(key string) uint16 {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	return crcOf(key) % slots
}

func crcOf(text string) uint16 {
	crc := uint16(0)
	for i := range len(text) {
		crc = crc<<8 ^ crcs[byte(crc>>8)^text[i]]
	}
	return crc
}

// crcs are the remainders of single bytes.
var crcs = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()

// fillers returns, for each slot, a short text whose slot it is.
var fillers = sync.OnceValue(func() *[slots]string {
	all := new([slots]string)
	for i, found := 0, 0; found < slots; i++ {
		text := strconv.FormatInt(int64(i), 36)
		if slot := slotOf(text); all[slot] == "" {
			all[slot] = text
			found++
		}
	}
	return all
})

func filler(slot uint16) string { return fillers()[slot] }
