package rehearse

import (
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"strings"
	"unsafe"

	"github.com/stint-dev/stint/policy"
)

// A request is, in a segment: how long after the one before it came, in
// nanoseconds; the length of the rest; flags; its cost unless that is 1; how many
// bytes it sends, unless none; its costs by rule, if it has some; and of each attribute
// one more than its length, or 0 if it is missing, and its value.
const (
	maxHead = 2 * binary.MaxVarintLen64

	flagDenied = 1 << 0
	flagCost   = 1 << 1
	flagSent   = 1 << 2
	flagCosts  = 1 << 3
	flagUnread = 1 << 4 // no rule has read its body
)

// A charge is what a request costs, as its caller said, and whether it passed.
type charge struct {
	cost    int64
	costs   policy.Costs
	allowed bool
}

// appendBody appends what is kept of a request, but its time.
func (r *Recorder) appendBody(to []byte, names []string, attrs policy.Attributes, c charge) []byte {
	at := len(to)
	to = append(to, 0)
	if !c.allowed {
		to[at] |= flagDenied
	}
	if c.cost != 1 {
		to[at] |= flagCost
		to = binary.AppendVarint(to, c.cost)
	}
	if body, ok := attrs.(interface{ BodyLength() int64 }); ok && body.BodyLength() > 0 {
		to[at] |= flagSent
		to = binary.AppendVarint(to, body.BodyLength())
	}
	if len(c.costs) > 0 {
		to[at] |= flagCosts
		to = binary.AppendUvarint(to, uint64(len(c.costs)))
		for name, cost := range c.costs {
			to = binary.AppendVarint(appendValue(to, name), cost)
		}
	}
	unread := false
	if body, ok := attrs.(interface{ BodyUnread() bool }); ok && body.BodyUnread() {
		unread, to[at] = true, to[at]|flagUnread
	}
	for _, name := range names {
		if unread && ofBody(name) { // asking would wait for the body
			to = append(to, 0)
			continue
		}
		v, ok := attrs.Attribute(name)
		switch {
		case !ok:
			to = append(to, 0)
		case len(v) > longest:
			to = r.appendCut(to, v)
		default:
			to = appendValue(to, v)
		}
	}
	return to
}

func ofBody(name string) bool { return strings.HasPrefix(name, "body.") }

func appendValue(to []byte, v string) []byte {
	to = binary.AppendUvarint(to, uint64(len(v))+1)
	return append(to, v...)
}

// hashed is how many bytes stand for what is cut off a long value.
const hashed = 1 + 32

// appendCut appends the beginning of a value that is too long, and a hash of
// the whole, so that values which begin alike stay apart.
func (r *Recorder) appendCut(to []byte, v string) []byte {
	to = binary.AppendUvarint(to, longest+1)
	to = append(to, v[:longest-hashed]...)
	to = append(to, '~')
	var sum [16]byte
	binary.BigEndian.PutUint64(sum[:8], maphash.String(r.seed, v))
	binary.BigEndian.PutUint64(sum[8:], maphash.String(r.seed, v[len(v)/2:])^uint64(len(v)))
	return hex.AppendEncode(to, sum[:])
}

// append writes a request at the end.
func (g *segment) append(body []byte, at int64) {
	at = max(at, g.last) // the wall clock may step back
	g.data = binary.AppendUvarint(g.data, uint64(at-g.last))
	g.data = binary.AppendUvarint(g.data, uint64(len(body)))
	g.data = append(g.data, body...)
	g.last = at
	g.requests++
}

// A Request is what is kept of one request. It implements [policy.Attributes].
type Request struct {
	At      int64 // nanoseconds since the Unix epoch
	Cost    int64
	Costs   policy.Costs // by rule; nil if the request had none
	Allowed bool

	sent   int64
	unread bool // its body, so that its fields are not known
	names  []string
	values []string
	has    []bool
}

// Attribute implements [policy.Attributes]: an attribute that was not kept is
// missing.
func (q *Request) Attribute(name string) (string, bool) {
	for i, n := range q.names {
		if n == name {
			return q.values[i], q.has[i]
		}
	}
	return "", false
}

// BodyLength returns how many bytes the body had, as far as was known.
func (q *Request) BodyLength() int64 { return q.sent }

// CopyTo makes to the same request, which stays when q is used for the next.
func (q *Request) CopyTo(to *Request) {
	values, has := append(to.values[:0], q.values...), append(to.has[:0], q.has...)
	*to = *q
	to.values, to.has = values, has
}

// read takes a request off the front of data, whose values stay there.
func (q *Request) read(names []string, data []byte, before int64) (rest []byte) {
	dt, n := binary.Uvarint(data)
	size, m := binary.Uvarint(data[n:])
	body := data[n+m : n+m+int(size)]
	rest = data[n+m+int(size):]
	q.At, q.names = before+int64(dt), names
	body = q.readCharge(body)
	if len(q.values) < len(names) {
		q.values, q.has = make([]string, len(names)), make([]bool, len(names))
	}
	for i := range names {
		length, n := binary.Uvarint(body)
		body = body[n:]
		if q.has[i] = length > 0; !q.has[i] {
			q.values[i] = ""
			continue
		}
		q.values[i] = text(body[:length-1])
		body = body[length-1:]
	}
	return rest
}

// readCharge takes the flags, and what they say is there, off the front of a body.
func (q *Request) readCharge(body []byte) []byte {
	flags := body[0]
	body = body[1:]
	number := func() int64 {
		v, n := binary.Varint(body)
		body = body[n:]
		return v
	}
	q.Cost, q.sent, q.Costs, q.Allowed, q.unread = 1, 0, nil, flags&flagDenied == 0, flags&flagUnread != 0
	if flags&flagCost != 0 {
		q.Cost = number()
	}
	if flags&flagSent != 0 {
		q.sent = number()
	}
	if flags&flagCosts == 0 {
		return body
	}
	count, n := binary.Uvarint(body)
	body = body[n:]
	q.Costs = make(policy.Costs, count)
	for range count {
		length, n := binary.Uvarint(body)
		name := text(body[n : n+int(length)-1])
		body = body[n+int(length)-1:]
		q.Costs[name] = number()
	}
	return body
}

// text returns bytes of a segment, which do not change, as text.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
