package accesslog

import "bytes"

// The columns of an AWS application load balancer's log.
const (
	albType    = 0
	albTime    = 1
	albClient  = 3
	albStatus  = 8
	albSent    = 11
	albRequest = 12
	albAgent   = 13
	albColumns = 14
)

// balancer reads the access log of an AWS application load balancer: columns
// between blanks, some in quotes.
type balancer struct {
	calendar calendar
	columns  [albColumns][]byte

	ip, method, path, host, status, bytes, agent int
}

func newBalancer(o *Options) Parser {
	return &balancer{
		calendar: newCalendar(o),
		ip:       o.slot("ip"), method: o.slot("method"), path: o.slot("path"), host: o.slot("host"),
		status: o.slot("status"), bytes: o.slot("bytes"), agent: o.slot("header.user-agent"),
	}
}

// Parse implements [Parser].
func (p *balancer) Parse(line []byte, r *Record) error {
	if len(line) == 0 {
		return ErrSkip
	}
	for i := range p.columns {
		var ok bool
		if len(line) > 0 && line[0] == '"' {
			p.columns[i], line, ok = quoted(line)
			line = bytes.TrimPrefix(line, blank)
		} else {
			p.columns[i], line, _ = bytes.Cut(line, blank)
			ok = len(p.columns[i]) > 0
		}
		if !ok {
			return errColumns
		}
	}
	switch string(p.columns[albType]) {
	case "http", "https", "h2", "grpcs", "ws", "wss":
	default:
		return errShape
	}
	var ok bool
	if r.At, ok = p.calendar.read(p.columns[albTime]); !ok {
		return errTime
	}
	if bytes.Count(p.columns[albRequest], blank) < 2 {
		return errShape
	}
	r.clear()
	r.put(p.ip, address(p.columns[albClient]))
	r.put(p.status, p.columns[albStatus])
	r.put(p.bytes, p.columns[albSent])
	r.put(p.agent, p.columns[albAgent])
	requestLine(p.columns[albRequest], p.method, p.path, r)
	if p.host >= 0 {
		r.put(p.host, hostOf(p.columns[albRequest]))
	}
	return nil
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
