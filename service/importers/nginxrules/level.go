package nginxrules

import (
	"cmp"
	"slices"
	"strings"
)

// A level is the directives of a block that inner blocks inherit.
type level struct {
	uses   []use
	dry    bool
	status string // of denials; "" is 503
	index  []string
	errors []errorPage
	asks   *Directive // auth_request
	static bool       // files answer
	behind bool       // to some requests, another server does
	denied bool       // deny all
	any    bool       // satisfy any: what deny all denies may pass, or have another code
	passed bool       // errors of an upstream lead to error pages, too
	stays  bool       // X-Accel-Redirect of an upstream leads nowhere
}

// An errorPage says where requests go that would be answered with one of its codes.
type errorPage struct {
	codes []string
	to    string
	at    *Directive
}

// level reads the directives of a block. A limit replaces all limits of its kind of outer
// blocks, as in nginx.
func (c *converter) level(block []Directive, outer level) (level, error) {
	now := outer
	now.static, now.behind = true, false
	var mine []use
	var pages []errorPage
	found, access := false, false
	for i := range block {
		d := &block[i]
		switch {
		case d.Name == c.kind:
			found = true
			u, ok, err := c.use(d)
			if err != nil {
				return now, err
			}
			if ok && !slices.Contains(mine, u) {
				mine = append(mine, u)
			}
		case d.Name == c.kind+"_dry_run" && len(d.Args) == 1:
			now.dry = d.Args[0] == "on"
		case d.Name == "merge_slashes" && d.last() == "off":
			c.lose(d, "merge_slashes off is NOT KEPT: rules take // in a path for /, with the limits of that")
		case d.Name == "limit_rate":
			c.note(d, "limit_rate is left out: it bounds bytes of an answer, stint bounds requests")
		case d.Name == c.kind+"_status" && len(d.Args) == 1:
			if now.status = d.Args[0]; now.status != "429" {
				c.note(d, "%s %s: a denial is 429 here, unless rules have denied: {status: %s}", d.Name, now.status, now.status)
			}
		case d.Name == "index":
			now.index = d.Args
		case d.Name == "error_page" && len(d.Args) > 1:
			pages = append(pages, errorPage{d.Args[:len(d.Args)-1], d.last(), d})
		case d.Name == "auth_request" && len(d.Args) == 1:
			if now.asks = d; d.Args[0] == "off" {
				now.asks = nil
			}
		case (d.Name == "deny" || d.Name == "allow") && !access:
			access, now.denied = true, d.Name == "deny" && d.last() == "all"
		case d.Name == "satisfy":
			now.any = d.last() == "any"
		case strings.HasSuffix(d.Name, "_intercept_errors") && len(d.Args) == 1:
			now.passed = d.Args[0] == "on"
		case strings.HasSuffix(d.Name, "_ignore_headers"):
			now.stays = slices.Contains(d.Args, "X-Accel-Redirect")
		case d.Name == "if" || d.Name == "limit_except":
			now.behind = now.behind || slices.ContainsFunc(d.Block, func(in Directive) bool { return strings.HasSuffix(in.Name, "_pass") })
		case d.Name == "memcached_pass":
			now.static, now.passed = false, true // its 404 leads to error pages in any case
		case strings.HasSuffix(d.Name, "_pass"), d.Name == "empty_gif", d.Name == "stub_status", strings.HasPrefix(d.Name, "content_by_"):
			now.static = false
		}
	}
	now.denied = now.denied && !now.any
	if pages != nil {
		now.errors = pages
	}
	if found {
		now.uses = mine
	}
	for i := range now.uses { // the use may be of an outer block, and the dry run of this one
		if now.uses[i].dry != now.dry {
			now.uses = slices.Clone(now.uses)
			now.uses[i].dry = now.dry
		}
	}
	return now, nil
}

// meets reports whether requests of a level may come to an error page by what they ask for: a file
// is missing or not for them, a client is, or the upstream's errors lead there.
func (l *level) meets(p *errorPage) bool {
	// all that nginx answers by itself (ngx_http_special_response.c), but those below
	codes := strings.Fields("400 401 403 405 406 408 409 411 412 413 414 415 416 421 494 495 496 497 501 505 507")
	if !l.static || l.behind || l.asks != nil {
		codes = append(codes, "500", "502", "503", "504")
	}
	switch {
	case l.denied:
		codes = []string{"403", "413"}
	case l.static:
		codes = append(codes, "301", "404") // 301 for a directory without its slash
	case l.passed:
		return true
	}
	return slices.ContainsFunc(p.codes, func(code string) bool { return slices.Contains(codes, code) })
}

func (l *level) page(code string) string {
	for _, p := range l.errors {
		if slices.Contains(p.codes, code) {
			return p.to
		}
	}
	return ""
}

// above says what becomes of requests above the limits of a location.
func (c *converter) above(l *location) {
	if len(l.uses) == 0 || !l.reached || l.dry {
		return
	}
	if l.status == "" {
		c.notes.Say("", "%s_status is 503 unless it is set: a denial is 429 here, unless rules have denied: {status: 503}", c.kind)
	}
	for _, p := range l.errors {
		if slices.Contains(p.codes, cmp.Or(l.status, "503")) && c.serves(l, &p) {
			c.lose(p.at, "requests above the limit of %s are answered by %s, NOT KEPT: rules deny them", l.text(), p.to)
		}
	}
}

// serves reports whether an error page may answer without an error: it redirects, or has another status.
func (c *converter) serves(l *location, p *errorPage) bool {
	status, set := strings.CutPrefix(p.codes[len(p.codes)-1], "=")
	switch {
	case !strings.HasPrefix(p.to, "/") && !strings.HasPrefix(p.to, "@"):
		return true
	case !set || status != "":
		return set && status < "400"
	}
	all := c.targets(l, way{to: p.to, as: asGET})
	return len(all) == 0 || slices.ContainsFunc(all, func(to *location) bool {
		return to.at.has("if", "rewrite") || !slices.ContainsFunc(to.at.Block, func(d Directive) bool { return d.Name == "return" && len(d.Args) > 0 && d.Args[0] >= "400" })
	})
}
