package sizing

// What Redis 7 on 64 bits adds to what a key and its value hold, with the
// allocator that it brings along. TestReal holds it to a server.
const (
	baseMemory  = 1 << 20 // of a server without keys and with few clients
	connections = 2       // of a process to a server, those of rueidis on few cores
	besides     = 200     // of what modes lease and async keep beside a state
)

// An entry is a key and its value, in bytes.
type entry struct{ key, value int }

// bytes returns what one entry takes where there are that many keys: the name, its place in the
// table of keys and in that of expiries, the value, and its part of both tables,
// which double when they are full.
func (e entry) bytes(keys int64) int64 {
	const header, object, place, short = 4, 16, 24, 44
	sum := class(e.key+header) + 2*class(place)
	if e.value <= short {
		sum += class(object + header + e.value)
	} else {
		head := header
		if e.value > 255 {
			head += 2
		}
		sum += class(object) + class(e.value+head)
	}
	tables := int64(2)
	for tables < keys {
		tables *= 2
	}
	return int64(sum) + 2*8*tables/max(keys, 1)
}

// class rounds up to what the allocator hands out: multiples of 16 up to 128, and
// four sizes to each doubling beyond.
func class(n int) int {
	step := 16
	for top := 128; n > top; top *= 2 {
		step = top / 4
	}
	return (n + step - 1) / step * step
}
