package redisstore

import (
	"strconv"
	"strings"
	"sync"
)

// A cluster divides keys into slots by the CRC16 (XMODEM) of what stands
// between the first brace and the next.

const slots = 16384

func slotOf(key string) uint16 {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc = crc<<8 ^ crcs[byte(crc>>8)^key[i]]
	}
	return crc % slots
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

// fillers returns, for each slot, a short text that lies in it.
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
