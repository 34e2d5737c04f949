package accesslog

import "bytes"

// syslog reads lines with the prefix of a syslog daemon:
//
//	<190>May 17 10:05:03 web1 nginx: …
//	2015-05-17T10:05:03.123+00:00 web1 nginx[12]: …
//	<190>1 2015-05-17T10:05:03Z web1 nginx 12 - - …
//	<134>May 17 10:05:03 haproxy[12]: …
type syslog struct{ calendar calendar }

// cut cuts off the prefix.
func (p *syslog) cut(line []byte) (message []byte, at int64, dated, ok bool) {
	at, message, ok = p.split(line)
	return message, at, true, ok
}

func (p *syslog) split(line []byte) (at int64, message []byte, ok bool) {
	rest := line
	if len(line) == 0 {
		return 0, nil, false
	}
	if line[0] == '<' {
		i := bytes.IndexByte(line, '>')
		if i < 2 || i > 4 {
			return 0, nil, false
		}
		rest = line[i+1:]
		if bytes.HasPrefix(rest, []byte("1 ")) {
			return p.structured(rest[2:])
		}
	}
	if len(rest) > stampLength && rest[3] == ' ' {
		if at, ok = p.calendar.stamp(rest); !ok || rest[stampLength] != ' ' {
			return 0, nil, false
		}
		rest = rest[stampLength+1:]
	} else {
		var stamp []byte
		if stamp, rest, ok = bytes.Cut(rest, blank); !ok {
			return 0, nil, false
		}
		if at, ok = p.calendar.read(stamp); !ok || len(stamp) < 19 {
			return 0, nil, false
		}
	}
	if host, after, _ := bytes.Cut(rest, blank); !bytes.HasSuffix(host, []byte(":")) { // HAProxy writes no host
		rest = after
	}
	tag, message, tagged := bytes.Cut(rest, []byte(": "))
	return at, message, tagged && bytes.IndexByte(tag, ' ') < 0
}

// structured cuts what follows the version in RFC 5424.
func (p *syslog) structured(rest []byte) (at int64, message []byte, ok bool) {
	stamp, rest, _ := bytes.Cut(rest, blank)
	if at, ok = p.calendar.read(stamp); !ok {
		return 0, nil, false
	}
	for range 4 { // host, program, process, message
		if _, rest, ok = bytes.Cut(rest, blank); !ok {
			return 0, nil, false
		}
	}
	for len(rest) > 0 && rest[0] == '[' { // structured data
		end := bytes.IndexByte(rest, ']')
		if end < 0 {
			return 0, nil, false
		}
		rest = rest[end+1:]
	}
	rest = bytes.TrimPrefix(bytes.TrimPrefix(rest, []byte("-")), blank)
	return at, bytes.TrimPrefix(rest, []byte("\ufeff")), true
}
