package memstore

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
)

// A seed is the secret that keys are hashed with, so that clients cannot choose
// keys that collide. It is drawn for each store and kept in its snapshots: the
// seed of the runtime's own hash could not be.
type seed [4]uint64

func newSeed() (k seed) {
	var b [32]byte
	rand.Read(b[:]) // never fails
	for i := range k {
		k[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return k
}

// hash folds a key into 64 bits by multiplications of 64 × 64 bits (the
// construction of wyhash, with every constant secret). It is never 0, which
// marks an empty slot.
func (k *seed) hash(key string) uint64 {
	var a, b uint64
	state, n := k[0], len(key)
	switch {
	case n > 16:
		i := 0
		for ; n-i > 16; i += 16 {
			state = fold(le64(key, i)^k[1], le64(key, i+8)^state)
		}
		a, b = le64(key, n-16), le64(key, n-8)
	case n >= 8:
		a, b = le64(key, 0), le64(key, n-8)
	case n >= 4:
		a, b = le32(key, 0), le32(key, n-4)
	case n > 0:
		a = uint64(key[0])<<16 | uint64(key[n/2])<<8 | uint64(key[n-1])
	}
	h := fold(k[2]^uint64(n), fold(a^k[1], b^state)^k[3])
	if h == 0 {
		return 1
	}
	return h
}

func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

func le64(s string, i int) uint64 {
	_ = s[i+7]
	return uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
		uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
}

func le32(s string, i int) uint64 {
	_ = s[i+3]
	return uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24
}
