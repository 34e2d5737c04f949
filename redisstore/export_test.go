package redisstore

// WholeNumbers is the script's arithmetic, for a test to run by itself.
func WholeNumbers() string {
	source, _ := assemble("whole")
	return source
}

// Source and SHA are the script.
var Source, SHA = source, sha

// Slot and Filler are those of a cluster.
var Slot, Filler = slotOf, filler

// State returns the key of the state of a client's key under a limit.
func State(o Options, key, limit string) string {
	n := names{prefix: o.Prefix, tag: o.Tag, secret: o.HashSecret}
	begin, end := n.place(key)
	return begin + escape(limit) + end
}
