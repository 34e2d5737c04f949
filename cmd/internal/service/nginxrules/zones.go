package nginxrules

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A zone is a limit_req_zone: what is counted, and how fast it may come.
type zone struct {
	name  string
	key   []string // attributes; none is one key for all
	rate  string   // as text of a limit: 10/s
	alone bool     // requests without the key are not counted
}

// variables are what nginx calls the attributes of a request.
var variables = map[string]string{
	"binary_remote_addr": "ip", "remote_addr": "ip", "host": "host", "http_host": "host",
	"uri": "path", "document_uri": "path", "request_uri": "path", "request_method": "method",
}

// waiting returns how many requests the zone lets through in some seconds.
func (z *zone) waiting(seconds int64) int64 {
	count, unit, _ := strings.Cut(z.rate, "/")
	n, _ := strconv.ParseInt(count, 10, 64) // rateText has looked at it
	if unit == "m" {
		return n * seconds / 60
	}
	return n * seconds
}

var (
	variable = regexp.MustCompile(`\$\{?([A-Za-z0-9_]+)\}?`)
	rateText = regexp.MustCompile(`^(\d{1,9})r/([sm])$`)
)

// zone reads a limit_req_zone.
func (c *converter) zone(d *Directive) error {
	if len(d.Args) < 3 {
		return fmt.Errorf("%s: limit_req_zone: write a key, a zone and a rate", d.where())
	}
	z := zone{}
	for _, a := range d.Args[1:] {
		name, value, _ := strings.Cut(a, "=")
		switch name {
		case "zone":
			z.name, _, _ = strings.Cut(value, ":")
		case "rate":
			m := rateText.FindStringSubmatch(value)
			if m == nil || strings.Trim(m[1], "0") == "" {
				return fmt.Errorf("%s: rate=%s: write a rate such as 10r/s or 30r/m", d.where(), value)
			}
			z.rate = m[1] + "/" + m[2]
		case "sync":
			c.note(d, "sync: several processes share a limit through --store")
		default:
			return fmt.Errorf("%s: limit_req_zone: %q is not known", d.where(), a)
		}
	}
	if z.name == "" || z.rate == "" {
		return fmt.Errorf("%s: limit_req_zone: zone= or rate= is missing", d.where())
	}
	for _, m := range variable.FindAllStringSubmatch(d.Args[0], -1) {
		if m[1] == "server_name" { // a word of the configuration, not what a client sends
			c.note(d, "$server_name: servers that use the zone %s share one count", z.name)
			continue
		}
		name, ok := variables[m[1]]
		if header, is := strings.CutPrefix(m[1], "http_"); is && !ok && header != "" {
			name, ok = "header."+strings.ReplaceAll(header, "_", "-"), true
		}
		if !ok {
			c.note(d, "the zone %s is NOT KEPT: its key has $%s, which rules do not know. Its limits are left out", z.name, m[1])
			c.lost[z.name] = true
			return nil
		}
		if m[1] == "request_uri" {
			c.note(d, "$request_uri has the query: a key here is the path alone")
		}
		z.key = append(z.key, name)
	}
	z.alone = len(z.key) == 1 && strings.HasPrefix(z.key[0], "header.")
	c.zones[z.name] = z
	return nil
}

// A use is a limit_req: a zone, and how many requests may be ahead of its rate.
type use struct {
	zone  string
	limit string
	dry   bool
}

// use reads a limit_req; ok is false if its zone is not kept.
func (c *converter) use(d *Directive, dry bool) (u use, ok bool, err error) {
	burst, delays, delay := int64(0), true, int64(0)
	for _, a := range d.Args {
		name, value, _ := strings.Cut(a, "=")
		switch name {
		case "zone":
			u.zone = value
		case "burst", "delay":
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil || n < 0 {
				return u, false, fmt.Errorf("%s: %s=%s: want a whole number", d.where(), name, value)
			}
			if name == "burst" {
				burst = n
			} else {
				delay = n
			}
		case "nodelay":
			delays = false
		default:
			return u, false, fmt.Errorf("%s: limit_req: %q is not known", d.where(), a)
		}
	}
	if c.lost[u.zone] {
		return u, false, nil
	}
	z, known := c.zones[u.zone]
	if !known {
		return u, false, fmt.Errorf("%s: limit_req: there is no limit_req_zone %q", d.where(), u.zone)
	}
	switch u.dry = dry; {
	case !delays || burst == 0 || delay >= burst:
		u.limit = fmt.Sprintf("%s burst %d", z.rate, burst+1)
	case delay > 0:
		u.limit = fmt.Sprintf("%s burst %d", z.rate, burst+1)
		c.note(d, "delay=%d: as many requests pass, but those behind the first %d are not made to wait", delay, delay)
	default:
		u.limit = fmt.Sprintf("%s burst %d leaky_queue", z.rate, burst)
		if burst > z.waiting(5) { // of [server.NewAuth]'s longest delay
			c.note(d, "burst=%d: asked at /auth, what would wait for more than 5 s is denied; stint proxy lets it wait", burst)
		}
	}
	return u, true, nil
}
