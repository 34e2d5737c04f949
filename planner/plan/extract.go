package plan

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/policy/rulesfile"
)

// An extraction says what to read from each line: the client, whether the line counts, and its
// cost. It does not change, and all workers share it.
type extraction struct {
	attributes []string            // all attributes to read from a line
	key        []int               // their indexes in attributes
	address    []bool              // by value of the key: it is an IP address
	routed     int                 // which value of the key is a path's route, or −1
	by         map[string]identity // by route
	patterns   map[string][]string // by route
	cost       int                 // index in attributes; −1 if each request costs 1
	chooses    bool                // a limit is chosen, so what dominates the log is looked for
	match      *policy.Policy
	from, to   int64
	behind     *httplimit.ClientIP // finds the client behind proxies, or nil
	ip, header int                 // indexes in attributes, for clients behind proxies
}

// newExtraction makes an extraction from the options. If whole is given, the key is these
// attributes unchanged: all that rules may look at.
func newExtraction(o *Options, whole []string) (*extraction, error) {
	q := &extraction{cost: -1, routed: -1, chooses: o.Choose != nil && whole == nil, from: math.MinInt64, to: math.MaxInt64}
	if !o.From.IsZero() {
		q.from = o.From.UnixNano()
	}
	if !o.To.IsZero() {
		q.to = o.To.UnixNano()
	}
	names := o.Key
	if whole != nil {
		names = whole
	}
	for _, name := range names {
		if name == "route" && o.routed {
			q.routed, name = len(q.key), "path"
		}
		q.key = append(q.key, q.attribute(name))
		q.address = append(q.address, name == "ip" && whole == nil)
	}
	if o.Cost != "" && o.Cost != "1" {
		q.cost = q.attribute(o.Cost)
	}
	var err error
	if q.match, err = q.matcher(o.Match); err != nil {
		return nil, err
	}
	if len(o.Client.Trusted) > 0 {
		q.behind, q.ip, q.header = &o.Client, q.attribute("ip"), q.attribute("header."+strings.ToLower(cmp.Or(o.Client.Header, "X-Forwarded-For")))
	}
	return q, nil
}

// attribute returns the index of an attribute, and adds it to those that are read.
func (q *extraction) attribute(name string) int {
	if i := slices.Index(q.attributes, name); i >= 0 {
		return i
	}
	q.attributes = append(q.attributes, name)
	return len(q.attributes) - 1
}

// matcher makes a rule without a limit that only says which lines match.
func (q *extraction) matcher(conditions []string) (*policy.Policy, error) {
	if len(conditions) == 0 {
		return nil, nil
	}
	match := make(map[string]any)
	for _, c := range conditions {
		name, want, ok := strings.Cut(c, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("condition %q: write ATTRIBUTE=PATTERN, such as path=/api/**", c)
		}
		q.attribute(name)
		match[name] = append(words(match[name]), want)
	}
	text, err := json.Marshal(map[string]any{"rules": []any{map[string]any{"name": "match", "match": match, "unlimited": true}}})
	if err != nil {
		return nil, err
	}
	rules, err := policy.Parse(text)
	if err != nil {
		var bad rulesfile.Errors
		if errors.As(err, &bad) && len(bad) > 0 {
			err = errors.New(strings.TrimSuffix(bad[0].Reason+"; "+bad[0].Hint, "; "))
		}
		return nil, fmt.Errorf("condition %q: %w", strings.Join(conditions, " "), err)
	}
	return policy.New(memstore.New(memstore.Options{MaxKeys: 1}), rules, policy.Options{})
}

func words(v any) []string {
	all, _ := v.([]string)
	return all
}

// An extractor takes keys and costs from the lines that one worker reads.
type extractor struct {
	*extraction
	result policy.Result
	line   attributes
	nets   map[string]string // IPv6 addresses to their networks
	hops   map[string][]byte // the address and header of a request to the client's address
	text   []byte
	whole  []byte // the present key
	_      [cacheLine]byte
}

// attributes are the attributes of a line as policy asks for them.
type attributes struct {
	names  []string
	values [][]byte
}

// Attribute implements [policy.Attributes].
func (a *attributes) Attribute(name string) (string, bool) {
	i := slices.Index(a.names, name)
	if i < 0 || a.values[i] == nil {
		return "", false
	}
	return string(a.values[i]), true
}

func (q *extraction) extractor() *extractor {
	return &extractor{
		extraction: q, line: attributes{names: q.attributes}, nets: make(map[string]string),
		text: make([]byte, 0, 2*cacheLine), whole: make([]byte, 0, 2*cacheLine), // cache lines of their own
	}
}

// blanks replaces what IIS and CloudFront write for blanks and commas. Addresses contain none of
// it.
var blanks = strings.NewReplacer("+", " ", "%20", " ", "%2C", ",", "%2c", ",")

// client replaces the address of a proxy with that of the client.
func (a *extractor) client(values [][]byte) {
	if a.behind == nil || values[a.header] == nil {
		return
	}
	peer, list := values[a.ip], values[a.header]
	if peer == nil { // the log has only the header, whose last entry asked the server
		i := bytes.LastIndexByte(list, ',')
		peer, list = bytes.TrimSpace(list[i+1:]), list[:max(i, 0)]
	}
	a.text = append(append(append(a.text[:0], peer...), ' '), list...)
	addr, ok := a.hops[string(a.text)]
	if !ok {
		if len(a.hops) == 1<<16 || a.hops == nil {
			a.hops = make(map[string][]byte)
		}
		r := &http.Request{RemoteAddr: string(peer), Header: http.Header{}}
		r.Header.Set(cmp.Or(a.behind.Header, "X-Forwarded-For"), blanks.Replace(string(list)))
		if found, known := a.behind.Addr(r); known {
			addr = []byte(found.String())
		}
		a.hops[string(a.text)] = addr
	}
	values[a.ip] = addr
}

// counts reports whether the line meets the conditions. An ambiguous path meets none, since rules
// refuse it.
func (a *extractor) counts(values [][]byte) bool {
	if a.match == nil {
		return true
	}
	a.line.values = values
	err := a.match.Decide(context.Background(), &a.line, 1, &a.result)
	return err == nil && a.result.Matched
}

// keyOf returns the key of a line. It is valid until the next call.
func (a *extractor) keyOf(values [][]byte) []byte {
	if len(a.key) == 1 {
		return a.value(0, values)
	}
	a.whole = a.appendKey(a.whole[:0], values)
	return a.whole
}

// appendKey appends the key of a line: its value, or several values each preceded by its length, so
// that different values never make the same key.
func (a *extractor) appendKey(to []byte, values [][]byte) []byte {
	if len(a.key) == 1 {
		return append(to, a.value(0, values)...)
	}
	if a.routed >= 0 {
		return a.appendRouted(to, values)
	}
	for i := range a.key {
		if values[a.key[i]] == nil {
			to = append(to, 0)
			continue
		}
		value := a.value(i, values)
		to = appendLength(to, len(value)+1)
		to = append(to, value...)
	}
	return to
}

// appendRouted appends a key of a client and a group of a route.
func (a *extractor) appendRouted(to []byte, values [][]byte) []byte {
	g, client := a.groupFor(values)
	if client == nil && values[a.key[0]] != nil {
		client = a.value(0, values)
	}
	if client == nil {
		to = append(to, 0)
	} else {
		to = append(appendLength(to, len(client)+1), client...)
	}
	text := g.key()
	return append(appendLength(to, len(text)+1), text...)
}

func appendLength(to []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		to = append(to, byte(n)|0x80)
	}
	return append(to, byte(n))
}

// value returns one value of the key. For an IPv6 address that is the network of 64 bits that one
// client has.
func (a *extractor) value(i int, values [][]byte) []byte {
	v := values[a.key[i]]
	if !a.address[i] {
		return v
	}
	return a.owner(v)
}

// owner returns the client that an address belongs to. It is valid until the next call.
func (a *extractor) owner(addr []byte) []byte {
	if !hasColon(addr) {
		return addr
	}
	net, ok := a.nets[string(addr)]
	if !ok {
		if len(a.nets) == 1<<16 {
			clear(a.nets)
		}
		net = network(string(addr))
		a.nets[string(addr)] = net
	}
	a.text = append(a.text[:0], net...)
	return a.text
}

func hasColon(b []byte) bool {
	for _, c := range b[:min(len(b), 5)] {
		if c == ':' {
			return true
		}
	}
	return false
}

func network(text string) string {
	addr, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return text
	case addr.Is4In6():
		return addr.Unmap().String()
	}
	return netip.PrefixFrom(addr.WithZone(""), 64).Masked().String()
}

// units returns the cost of a line. Where the field is missing or no whole number, the cost is 1,
// and known is false so that the caller counts it.
func (a *extractor) units(values [][]byte) (n int64, known bool) {
	if a.cost < 0 {
		return 1, true
	}
	v := values[a.cost]
	if len(v) == 0 || len(v) > 18 {
		return 1, false
	}
	for _, c := range v {
		if c -= '0'; c > 9 {
			return 1, false
		}
		n = n*10 + int64(c)
	}
	return n, true
}

// values splits a key into its values. A missing value is "".
func (q *extraction) values(key string) []string {
	if len(q.key) == 1 {
		return []string{key}
	}
	var all []string
	for range q.key {
		n, shift := 0, 0
		for len(key) > 0 {
			c := key[0]
			key = key[1:]
			n |= int(c&0x7f) << shift
			if shift += 7; c < 0x80 {
				break
			}
		}
		if n == 0 {
			all = append(all, "")
			continue
		}
		all = append(all, key[:n-1])
		key = key[n-1:]
	}
	return all
}

// name returns a key for people.
func (q *extraction) name(key string) string {
	values := q.values(key)
	for i, p := range values {
		if p == "" {
			values[i] = missing
		}
	}
	return strings.Join(values, " ")
}

// missing is the name of a missing value.
const missing = "(none)"

// when returns a time in the zone of the report.
func (o *Options) when(at int64) time.Time {
	zone := o.Zone
	if zone == nil {
		zone = time.UTC
	}
	return time.Unix(0, at).In(zone)
}
