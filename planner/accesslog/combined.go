package accesslog

import (
	"bytes"
	"net/netip"
)

// combined reads the common and the combined log format of Apache and nginx:
//
//	1.2.3.4 - ann [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5 "referer" "agent"
//
// Between address and time are exactly an identity and a user, which may hold blanks behind the
// identity "-". The first column may be a list of addresses, as in X-Forwarded-For: the last one
// asked the server, on behalf of those before it. After the agent, nginx may have put another list
// of addresses; everything else there is ignored. Reading stops after the last attribute that is
// wanted.
type combined struct {
	clf clf

	ip, user, method, path, status, bytes, referer, agent, forwarded int

	request, answer, quoted bool // whether these columns are wanted
}

func newCombined(o *Options) Parser {
	p := &combined{
		ip: o.slot("ip"), user: o.slot("user"),
		method: o.slot("method"), path: o.slot("path"),
		status: o.slot("status"), bytes: o.slot("bytes"),
		referer: o.slot("header.referer"), agent: o.slot("header.user-agent"),
		forwarded: o.slot("header.x-forwarded-for"),
	}
	p.quoted = p.referer >= 0 || p.agent >= 0 || p.forwarded >= 0
	p.answer = p.quoted || p.status >= 0 || p.bytes >= 0
	p.request = p.answer || p.method >= 0 || p.path >= 0
	return p
}

// Parse implements [Parser].
func (p *combined) Parse(line []byte, r *Record) error {
	i := firstColumn(line)
	if i <= 0 {
		return noBlank(line)
	}
	at := i + 5 // the usual text is "- - ["
	if len(line) <= at || string(line[i:at+1]) != " - - [" {
		if at = p.bracket(line, i); at < 0 {
			return errShape
		}
		if !identified(line[i:at]) {
			return errShape
		}
	}
	rest := line[at+1:]
	if !beforeRequest(rest) {
		return errShape
	}
	var ok bool
	if r.At, ok = p.clf.read(rest[:clfLength]); !ok {
		return errTime
	}
	if joined(rest[clfLength+2:], p.clf.is) {
		return errShape
	}
	peer, list := lastOf(line[:i])
	if p.ip >= 0 {
		if r.Values[p.ip] = peer; len(peer) == 1 && peer[0] == '-' {
			r.Values[p.ip] = nil
		}
	}
	if p.user >= 0 {
		r.Values[p.user] = nil
		r.put(p.user, user(line[i:at]))
	}
	if !p.request {
		return nil
	}
	err := p.tail(rest[clfLength+2:], r)
	if p.forwarded >= 0 && list != nil {
		r.Values[p.forwarded] = list
	}
	return err
}

// bracket returns the index before the "[" of the time, behind the first column, or −1 if there is
// no time. A user name may contain brackets, but no quote without a backslash.
func (p *combined) bracket(line []byte, from int) int {
	first := -1
	for at := from; ; at++ {
		i := bytes.IndexByte(line[at:], '[')
		if i < 0 {
			return first
		}
		if at += i; first < 0 {
			first = at
		}
		if rest := line[at+1:]; beforeRequest(rest) {
			if _, ok := p.clf.read(rest[:clfLength]); ok {
				return at
			}
		}
	}
}

// beforeRequest reports whether a time that begins here would be followed by a request.
func beforeRequest(rest []byte) bool {
	return len(rest) >= clfLength+3 && rest[clfLength] == ']' && rest[clfLength+1] == ' ' && rest[clfLength+2] == '"'
}

// joined reports whether another request follows on the line behind the time of the first, as where
// lines have lost their ends. What is in quotes, a client may write.
func joined(rest []byte, time func([]byte) bool) bool {
	if bytes.IndexByte(rest, '\r') >= 0 {
		return true
	}
	if !bytes.Contains(rest, []byte(`] "`)) {
		return false
	}
	for rest = bytes.TrimLeft(rest, " "); len(rest) > 0; rest = bytes.TrimLeft(rest, " ") {
		if rest[0] == '"' {
			_, after, ok := quoted(rest)
			if !ok || len(after) > 0 && after[0] != ' ' {
				return true // the line was torn within the quotes
			}
			rest = after
			continue
		}
		if in, _, ok := bytes.Cut(rest, []byte(`] "`)); ok && len(in) > 0 && in[0] == '[' && time(in[1:]) {
			return true
		}
		_, rest, _ = bytes.Cut(rest, blank)
	}
	return false
}

// firstColumn returns the end of a line's first column, or 0 or less if it has none. The column is
// an address, or a list of addresses with blanks behind the commas.
func firstColumn(line []byte) int {
	i := bytes.IndexByte(line, ' ')
	for i > 0 && line[i-1] == ',' {
		j := bytes.IndexByte(line[i+1:], ' ')
		if j < 0 {
			return j
		}
		i += 1 + j
	}
	return i
}

// lastOf returns the last of a list of addresses, and the list of those before it, or nil if there
// are none. The list may be in quotes.
func lastOf(column []byte) (peer, others []byte) {
	n := len(column)
	if n > 1 && column[0] == '"' && column[n-1] == '"' {
		column = column[1 : n-1]
	}
	i := bytes.LastIndexByte(column, ',')
	if i < 0 {
		return column, nil
	}
	return bytes.TrimLeft(column[i+1:], " "), column[:i]
}

// identified reports whether there is an identity and a user between the address and the time: "
// ident user ". Anything else means that the first word of the line is no address.
func identified(between []byte) bool {
	n := len(between)
	if n < 4 || between[0] != ' ' || between[n-1] != ' ' || between[1] == ' ' {
		return false
	}
	ident, user, ok := bytes.Cut(between[1:n-1], blank)
	return ok && (len(ident) == 1 && ident[0] == '-' || bytes.IndexByte(user, ' ') < 0)
}

// user returns the name between the identity and the time.
func user(between []byte) []byte {
	between = bytes.TrimSpace(between)
	if i := bytes.IndexByte(between, ' '); i >= 0 {
		return bytes.TrimSpace(between[i+1:])
	}
	return nil
}

// tail reads what follows the time.
func (p *combined) tail(rest []byte, r *Record) error {
	for _, slot := range [...]int{p.method, p.path, p.status, p.bytes, p.referer, p.agent, p.forwarded} {
		if slot >= 0 {
			r.Values[slot] = nil
		}
	}
	request, rest, ok := quoted(rest)
	if !ok {
		return errShape
	}
	requestLine(request, p.method, p.path, r)
	if !p.answer {
		return nil
	}
	status, rest, _ := bytes.Cut(bytes.TrimLeft(rest, " "), blank)
	size, rest, _ := bytes.Cut(rest, blank)
	if len(status) != 3 {
		return errShape
	}
	r.put(p.status, status)
	r.put(p.bytes, size)
	if !p.quoted {
		return nil
	}
	if value, after, ok := quoted(bytes.TrimLeft(rest, " ")); ok {
		r.put(p.referer, value)
		if value, after, ok = quoted(bytes.TrimLeft(after, " ")); ok {
			if r.put(p.agent, value); len(after) > 0 && after[0] != ' ' && after[0] != '\t' {
				return errShape // the end of another line
			}
			if value, _, ok = quoted(bytes.TrimLeft(after, " ")); ok && p.forwarded >= 0 && hops(value) {
				r.put(p.forwarded, value)
			}
		}
	}
	return nil
}

// newAnswered is newCombined for a log whose field behind the agent names the server that answered;
// see [answerers].
func newAnswered(o *Options) Parser {
	p := newCombined(o).(*combined)
	p.forwarded = -1
	return p
}

// answerers reports whether the field behind the agent names the server that answered, as nginx's
// $upstream_addr does, and not the clients of a proxy. It does if all its addresses are private,
// and they either have ports or are fewer than the addresses that asked.
func answerers(lines [][]byte) bool {
	p := newCombined(&Options{Attributes: []string{"ip", "header.x-forwarded-for"}})
	r := Record{Values: make([][]byte, 2)}
	asked, answered := make(map[string]bool), make(map[string]bool)
	ported := true
	for _, line := range lines {
		if p.Parse(line, &r) != nil || r.Values[1] == nil {
			continue
		}
		asked[string(r.Values[0])] = true
		for entry := range bytes.SplitSeq(r.Values[1], []byte{','}) {
			entry = bytes.TrimSpace(entry)
			host := address(entry)
			addr, err := netip.ParseAddr(string(host))
			if err != nil || !addr.IsPrivate() && !addr.IsLoopback() {
				return false
			}
			ported = ported && len(host) < len(entry)
			answered[string(host)] = true
		}
	}
	return len(answered) > 0 && (ported || len(answered) < len(asked))
}

// hops reports whether a value looks like addresses between commas.
func hops(value []byte) bool {
	for entry := range bytes.SplitSeq(value, []byte{','}) {
		if entry = bytes.TrimSpace(entry); !isAddress(address(entry)) && string(entry) != "unknown" {
			return false
		}
	}
	return true
}

var blank = []byte{' '}

// quoted cuts off a quoted text. A quote behind a backslash does not end it.
func quoted(b []byte) (value, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, false
	}
	for i := 1; ; i++ {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			return nil, nil, false
		}
		i += j
		escapes := 0
		for b[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return b[1:i], b[i+1:], true
		}
	}
}

// requestLine splits GET /path?query HTTP/1.1.
func requestLine(request []byte, method, path int, r *Record) {
	if method < 0 && path < 0 {
		return
	}
	verb, target, ok := bytes.Cut(request, blank)
	if !ok {
		return
	}
	if i := bytes.LastIndexByte(target, ' '); i >= 0 {
		target = target[:i]
	}
	r.put(method, verb)
	r.put(path, pathOf(target))
}

// pathOf cuts scheme, host and query off a target.
func pathOf(target []byte) []byte {
	if i := bytes.IndexByte(target, '?'); i >= 0 {
		target = target[:i]
	}
	if len(target) == 0 || target[0] == '/' {
		return target
	}
	if i := bytes.Index(target, []byte("://")); i >= 0 {
		rest := target[i+3:]
		if j := bytes.IndexByte(rest, '/'); j >= 0 {
			return rest[j:]
		}
		return []byte("/")
	}
	return target
}

// noBlank is the error of a line without a blank: it is empty, or the file is no log.
func noBlank(line []byte) error {
	if len(line) == 0 {
		return ErrSkip
	}
	return errShape
}

// hostOf returns the host of GET http://host:80/path HTTP/1.1.
func hostOf(request []byte) []byte {
	_, rest, ok := bytes.Cut(request, []byte("://"))
	if !ok {
		return nil
	}
	if i := bytes.IndexAny(rest, "/ ?"); i >= 0 {
		rest = rest[:i]
	}
	return address(rest)
}
