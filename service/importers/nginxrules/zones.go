package nginxrules

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/service/importers"
)

// A zone is a limit_req_zone or a limit_conn_zone.
type zone struct {
	name     string
	rate     string // of a limit_req_zone, as text of a limit: 10/s
	variants []variant
	lost     string // why it is not kept
	by       string // its key, as written
	partly   string // for which requests it is not kept
}

// A variant is a key, and the requests that have it: those that meet one of when, and none of
// unless. No when means all requests.
type variant struct {
	when, unless [][]importers.Cond
	text         string
	key          []string // attributes; none is one key for all
	alone        bool     // requests without the key are not counted
}

// waiting returns how many requests the zone lets through in some seconds.
func (z *zone) waiting(seconds int64) int64 {
	count, unit, _ := strings.Cut(z.rate, "/")
	n, _ := strconv.ParseInt(count, 10, 64) // no error, since rateText has matched
	if unit == "m" {
		return n * seconds / 60
	}
	return n * seconds
}

var rateText = regexp.MustCompile(`^(\d{1,9})r/([sm])$`)

func (c *converter) zone(d *Directive) error {
	rated := c.kind == "limit_req"
	if rated && len(d.Args) < 3 {
		return fmt.Errorf("%s: limit_req_zone: write a key, a zone and a rate", d.where())
	}
	if !rated && len(d.Args) != 2 {
		return fmt.Errorf("%s: limit_conn_zone: write a key and a zone", d.where())
	}
	z := &zone{}
	for _, a := range d.Args[1:] {
		name, value, _ := strings.Cut(a, "=")
		switch {
		case name == "zone":
			z.name, _, _ = strings.Cut(value, ":")
		case name == "rate" && rated:
			m := rateText.FindStringSubmatch(value)
			if m == nil || strings.Trim(m[1], "0") == "" {
				return fmt.Errorf("%s: rate=%s: write a rate such as 10r/s or 30r/m", d.where(), value)
			}
			z.rate = m[1] + "/" + m[2]
		case name == "sync" && rated:
			c.note(d, "sync: several processes share a limit through --store")
		default:
			return fmt.Errorf("%s: %s: %q is not known", d.where(), d.Name, a)
		}
	}
	if z.name == "" || rated && z.rate == "" {
		return fmt.Errorf("%s: %s: zone= or rate= is missing", d.where(), d.Name)
	}
	c.zones[z.name] = z
	z.by = d.Args[0]
	cases, err := c.choices(d.Args[0], 0)
	if err == nil {
		err = c.variants(d, z, cases)
	}
	if err != nil {
		z.lost = fmt.Sprintf("the key of the zone %s (%s) is none that rules can have: %v", z.name, d.where(), err)
	}
	return nil
}

// variants makes the variants of a zone from the cases of its key. A case whose requests a later
// case counts by the same key needs no variant.
func (c *converter) variants(d *Directive, z *zone, cases []choice) error {
	for i, one := range cases {
		v := variant{text: one.text}
		c.spellings(d, z, one, cases[i+1:])
		for _, before := range cases[:i] {
			if less, ok := importers.Surely(before.when); ok && before.text != one.text && !importers.AllApart(before.when, one.when) {
				v.unless = append(v.unless, less)
			} else if !ok {
				c.note(d, "requests of %s count in later cases, too: rules cannot say which they are exactly", importers.Text(before.when))
			}
		}
		v.unless = importers.General(v.unless)
		over := slices.ContainsFunc(cases[i+1:], func(o choice) bool { return len(o.when) == 0 && o.text == one.text })
		kept := !slices.ContainsFunc(cases[i+1:], func(o choice) bool {
			return o.text != one.text && len(o.when) > 0 && !importers.AllApart(o.when, one.when)
		})
		if one.text == "" || slices.ContainsFunc(v.unless, func(u []importers.Cond) bool { return len(u) == 0 }) || over && kept && len(one.when) > 0 {
			continue
		}
		if len(one.when) > 0 {
			v.when = [][]importers.Cond{one.when}
		}
		if err := c.key(d, z, &v); err != nil {
			return err
		}
		if z.add(v) && slices.ContainsFunc(one.when, func(w importers.Cond) bool { return w.Attribute != "ip" }) {
			c.note(d, "the cases of the key %s are counted apart here, though some of them are the same to nginx", d.Args[0])
		}
	}
	return nil
}

// spellings notes what becomes of other spellings of the values of a case: nginx ignores case,
// but rules take these spellings for a later case.
func (c *converter) spellings(d *Directive, z *zone, one choice, later []choice) {
	i := slices.IndexFunc(one.when, func(w importers.Cond) bool { return w.Spelled })
	if i < 0 || !slices.ContainsFunc(later, func(o choice) bool { return o.text != one.text && !importers.AllApart(o.when, one.when) }) {
		return
	}
	w := one.when[i]
	if one.text == "" {
		c.note(d, "to nginx, upper and lower case of %s make no difference: here other spellings than these have the limit", w.Text())
		return
	}
	z.partly = fmt.Sprintf("other spellings of %s: to nginx, upper and lower case make no difference (%s)", w.Text(), d.where())
	if w.Attribute == "path" {
		z.partly += ". To rules neither, if you write ignore_path_case: true"
	}
}

// named notes the variables whose name clients may spell otherwise: nginx ignores case, and takes _ for -
// in a header if it takes such a header at all.
func (c *converter) named(d *Directive, text string) {
	for _, m := range variable.FindAllStringSubmatch(text, -1) {
		switch name := attributeOf(m[1]); {
		case strings.HasPrefix(name, "header."):
			if c.unders && strings.Contains(name, "-") {
				c.note(d, "$%s: nginx is set to take a header with _ for one with -. Here a request with that spelling counts as one without it", m[1])
			}
		case strings.Contains(name, "."):
			c.note(d, "$%s: to nginx, upper and lower case of the name make no difference. Here a request with another spelling is refused, with 400", m[1])
		}
	}
}

// add adds a variant, or merges it into one that differs only in values. again says that variants of
// one key stay apart.
func (z *zone) add(v variant) (again bool) {
	for i := range z.variants {
		o := &z.variants[i]
		if o.text != v.text {
			continue
		}
		again = true
		if !slices.EqualFunc(o.unless, v.unless, func(a, b []importers.Cond) bool { return importers.Text(a) == importers.Text(b) }) || len(o.when) != 1 || len(v.when) != 1 || len(o.when[0]) != 1 || len(v.when[0]) != 1 {
			continue
		}
		if a, b := &o.when[0][0], v.when[0][0]; a.Attribute == b.Attribute && a.Values != nil && b.Values != nil {
			o.when = [][]importers.Cond{{{Attribute: a.Attribute, Values: append(slices.Clone(a.Values), b.Values...)}}}
			return false
		}
	}
	z.variants = append(z.variants, v)
	return again
}

// joined reports whether several values that a client chooses may make one text together, as ab and a with b do:
// one key to nginx, and several to rules.
func joined(text string) bool {
	var loose []string // the attributes of which the text does not say where they end
	all := variable.FindAllStringSubmatchIndex(text, -1)
	for i, m := range all {
		name, after := attributeOf(text[m[2]:m[3]]), text[m[1]:]
		if i+1 < len(all) && m[1] == all[i+1][0] && attributeOf(text[all[i+1][2]:all[i+1][3]]) == "path" {
			after = "/"
		}
		ends := name == "" || name == "ip"                                                                      // of no client's choice
		for kind, end := range map[string]string{"method": " /", "host": " /", "query.": "&", "cookie.": ";"} { // what is in none
			ends = ends || strings.HasPrefix(name, kind) && after != "" && strings.Contains(end, after[:1])
		}
		if !ends && !slices.Contains(loose, name) {
			loose = append(loose, name)
		}
	}
	return len(loose) > 1
}

func (c *converter) key(d *Directive, z *zone, v *variant) error {
	c.named(d, v.text)
	if z.partly == "" && joined(v.text) {
		z.partly = fmt.Sprintf("values of %s that make one text together, such as ab, and a with b: here they count apart (%s)", d.Args[0], d.where())
	}
	never := variable.ReplaceAllString(v.text, "") != "" // never empty: nginx does not count an empty key
	for _, m := range variable.FindAllStringSubmatch(v.text, -1) {
		if m[1] == "server_name" { // it comes from the configuration, not from a client
			c.note(d, "$server_name: servers that use the zone %s share one count", z.name)
			never = true
			continue
		}
		name := attributeOf(m[1])
		if header, ok := strings.CutPrefix(m[1], "http_"); ok && name == "" && c.notes.ByAddress(d.where(), strings.ReplaceAll(header, "_", "-")) {
			name = "ip"
		}
		switch {
		case name == "":
			return fmt.Errorf("it has $%s", m[1])
		case m[1] == "request_uri":
			c.note(d, "$request_uri has the query: a key here is the path alone")
		case m[1] == "http_host":
			c.note(d, "$http_host: upper and lower case and the port make no difference here")
		}
		if !slices.Contains(v.key, name) {
			v.key = append(v.key, name)
		}
		never = never || !strings.Contains(name, ".")
	}
	if v.alone = !never && len(v.key) == 1; !never && len(v.key) > 1 {
		var none []importers.Cond
		for _, name := range v.key {
			none = append(none, importers.Cond{Attribute: name})
		}
		v.unless = append(v.unless, none)
	}
	return nil
}

// A use is a limit_req or a limit_conn: a zone, and the limit as text.
type use struct {
	zone  string
	limit string
	dry   bool
}

// use reads a limit_req or a limit_conn. ok is false if its zone is not kept.
func (c *converter) use(d *Directive) (u use, ok bool, err error) {
	read := c.request
	if c.kind == "limit_conn" {
		read = c.connections
	}
	var limit func(*zone) string
	if u.zone, limit, err = read(d); err != nil {
		return u, false, err
	}
	z := c.zones[u.zone]
	switch {
	case z == nil && c.missing:
		c.lose(d, "%s zone=%s is NOT KEPT: no file that was read has this zone", d.Name, u.zone)
		return u, false, nil
	case z == nil:
		return u, false, fmt.Errorf("%s: %s: there is no %s_zone %q", d.where(), d.Name, d.Name, u.zone)
	case z.lost != "":
		c.lose(d, "%s zone=%s is NOT KEPT: %s", d.Name, u.zone, z.lost)
		return u, false, nil
	}
	if z.partly != "" {
		c.lose(d, "%s zone=%s is NOT KEPT for %s", d.Name, u.zone, z.partly)
	}
	u.limit = limit(z)
	return u, true, nil
}

// connections reads a limit_conn. limit returns the text of its limit.
func (c *converter) connections(d *Directive) (name string, limit func(*zone) string, err error) {
	if len(d.Args) != 2 {
		return "", nil, fmt.Errorf("%s: limit_conn: write a zone and a number", d.where())
	}
	n, err := strconv.ParseUint(d.Args[1], 10, 16)
	if err != nil || n == 0 {
		return "", nil, fmt.Errorf("%s: limit_conn %s %s: want a number from 1 to 65535", d.where(), d.Args[0], d.Args[1])
	}
	return d.Args[0], func(*zone) string {
		c.note(d, "limit_conn is a limit in flight: nginx counts requests too, over HTTP/2 each, and no idle connections. /auth sees no request end and denies: if nginx asks it, leave limit_conn to nginx")
		return fmt.Sprintf("%d in flight", n)
	}, nil
}

// request reads a limit_req. limit returns the text of its limit, at the rate of the zone.
func (c *converter) request(d *Directive) (name string, limit func(*zone) string, err error) {
	burst, delays, delay := int64(0), true, int64(0)
	for _, a := range d.Args {
		word, value, _ := strings.Cut(a, "=")
		switch word {
		case "zone":
			name = value
		case "burst", "delay":
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil || n < 0 {
				return "", nil, fmt.Errorf("%s: %s=%s: want a whole number", d.where(), word, value)
			}
			if word == "burst" {
				burst = n
			} else {
				delay = n
			}
		case "nodelay":
			delays = false
		default:
			return "", nil, fmt.Errorf("%s: limit_req: %q is not known", d.where(), a)
		}
	}
	return name, func(z *zone) string {
		switch {
		case !delays || burst == 0 || delay >= burst:
			return fmt.Sprintf("%s burst %d", z.rate, burst+1)
		case delay > 0:
			c.note(d, "delay=%d: as many requests pass, but those behind the first %d are not made to wait", delay, delay)
			return fmt.Sprintf("%s burst %d", z.rate, burst+1)
		}
		if burst > z.waiting(5) { // the longest delay of [server.NewAuth] is 5 s
			c.note(d, "burst=%d: asked at /auth, what would wait for more than 5 s is denied; stint proxy lets it wait", burst)
		}
		return fmt.Sprintf("%s burst %d leaky_queue", z.rate, burst)
	}, nil
}
