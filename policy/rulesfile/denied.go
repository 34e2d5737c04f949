package rulesfile

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-dev/stint/internal/wording"
)

// A Reply is what clients are told of a rule. The zero Reply is the usual answer.
type Reply struct {
	Denied *Denied // nil: the usual answer
	CORS   *CORS   // nil: pages of other origins cannot read a denial
	Hidden bool    // header fields and bodies do not show the rule's limits
}

// String returns in one line what differs from the usual answer; "" if nothing does.
func (r *Reply) String() string {
	var all []string
	if x := r.Denied; x != nil {
		if x.Status > 0 {
			all = append(all, fmt.Sprint("status ", x.Status))
		}
		for _, h := range x.Headers {
			all = append(all, "header "+h.Name)
		}
		if x.Type != "" {
			all = append(all, fmt.Sprintf("%d bytes of %s", len(x.Body), x.Type))
		}
	}
	if r.CORS != nil && len(r.CORS.Origins) == 0 {
		all = append(all, "cors for any origin")
	} else if r.CORS != nil {
		all = append(all, "cors for "+strings.Join(r.CORS.Origins, ", "))
	}
	if r.Hidden {
		all = append(all, "no fields")
	}
	return strings.Join(all, "; ")
}

// A Denied is how a denial is answered.
type Denied struct {
	Status  int // 0: the usual
	Headers []Header
	Type    string // the Content-Type of Body; "" if the body is the usual
	Body    string
}

// A Header is a field of an answer.
type Header struct{ Name, Value string }

// CORS is the origins whose pages may read a denial, and send cookies. Without Origins all
// may read it, but send none.
type CORS struct{ Origins []string }

// Allows reports whether a page of an origin may read the answer.
func (c *CORS) Allows(origin string) bool {
	if len(c.Origins) > 0 {
		return slices.Contains(c.Origins, origin)
	}
	return origin != "" && len(origin) <= maxOrigin && strings.Trim(origin, printable) == ""
}

// These are the bounds of an answer.
const (
	maxHeaders = 16
	maxValue   = 1024 // bytes
	maxBody    = 16 << 10
	maxOrigin  = 256
)

// These are the placeholders in bodies and headers. Nothing that a client sends is among
// them.
var placeholders = []string{"{rule}", "{retry_after}"}

// Fill returns text with its placeholders replaced: {rule} by the name of the rule,
// {retry_after} by the seconds of Retry-After. A retryAfter of 0 means that no wait helps,
// and becomes null in JSON, else never.
func (x *Denied) Fill(text, rule string, retryAfter int64) string {
	seconds := strconv.FormatInt(retryAfter, 10)
	switch {
	case retryAfter > 0:
	case isJSON(x.Type):
		seconds = "null"
	default:
		seconds = "never"
	}
	return strings.NewReplacer(placeholders[0], rule, placeholders[1], seconds).Replace(text)
}

// replies reads a field about what clients are told, of a rule or at the top of the file.
func (d *decoder) replies(r *Reply, f Field, t *trail) {
	switch f.Name {
	case "denied":
		r.Denied = d.denied(f.Value, t)
	case "cors":
		r.CORS = d.cors(f.Value, t)
	case "fields":
		r.Hidden = d.word(f.Value, t, "show", "hide") == "hide"
	}
}

func (d *decoder) denied(n *Node, t *trail) *Denied {
	x := new(Denied)
	var body, kind *Node
	fs := d.fields(n, t, `such as {"status": 429, "body": "Try again in {retry_after} seconds."}`, deniedFields...)
	for _, f := range fs {
		switch at := t.in(f.Name); f.Name {
		case "status":
			x.Status = int(d.number(f.Value, at, 400, 599))
		case "headers":
			for _, h := range d.fields(f.Value, at, `such as {"X-Rule": "{rule}"}`) {
				d.header(x, h, at.in(h.Name))
			}
		case "type":
			kind, x.Type = f.Value, d.mediaType(f.Value, at)
		case "body":
			body, x.Body = f.Value, d.filled(f.Value, at, maxBody)
		}
	}
	switch {
	case n.Kind != MapKind:
	case len(n.Fields) == 0:
		d.fail(n, t, "known are "+strings.Join(deniedFields, ", "), "says nothing")
	case len(x.Headers) > maxHeaders:
		d.fail(n, t.in("headers"), "", "%d headers: at most %d", len(x.Headers), maxHeaders)
	case kind != nil && body == nil:
		d.fail(kind, t.in("type"), "give the body too, or drop the type", "a type without a body")
	case body != nil:
		d.body(x, body, t.in("body"), kind != nil)
	}
	return x
}

// body finds the media type of a body, or checks that the body is of the type that was given.
func (d *decoder) body(x *Denied, n *Node, t *trail, typed bool) {
	if !typed {
		x.Type = "application/json"
		if x.notJSON() != nil {
			x.Type = "text/plain; charset=utf-8"
		}
	}
	if err := x.notJSON(); err != nil && isJSON(x.Type) {
		d.fail(n, t, "quote {rule} and what else is text, or give another type", "the type says JSON: %v", err)
	}
}

// notJSON returns why the body is not JSON, with values in its placeholders and without.
func (x *Denied) notJSON() error {
	var any json.RawMessage
	if err := json.Unmarshal([]byte(x.Fill(x.Body, "rule", 1)), &any); err != nil {
		return err
	}
	return json.Unmarshal([]byte(x.Fill(x.Body, "", 0)), &any)
}

func isJSON(kind string) bool {
	media, _, _ := mime.ParseMediaType(kind)
	return strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json")
}

func (d *decoder) mediaType(n *Node, t *trail) string {
	const hint = "such as application/json or text/html; charset=utf-8"
	s, ok := d.text(n, t, hint)
	media, _, err := mime.ParseMediaType(s)
	if ok && (err != nil || !strings.Contains(media, "/") || strings.Trim(s, printable+" ") != "" || len(s) > maxValue) {
		d.fail(n, t, hint, "%q is no media type", wording.Shorten(s))
	}
	return s
}

// token has the bytes that a header's name may have, printable those of its value, besides
// blanks.
const (
	token     = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	printable = token + `"(),/:;<=>?@[\]{}`
)

// ownHeaders are the headers that a rule must not set, because the answer sets them by
// itself, and what to do instead.
var ownHeaders = map[string]string{
	"Content-Type": "write it as type", "Content-Length": "drop it", "Content-Encoding": "drop it: the body is sent as it is", "Date": "drop it",
	"Transfer-Encoding": "drop it", "Connection": "drop it", "Keep-Alive": "drop it", "Upgrade": "drop it", "Trailer": "drop it",
	"Retry-After": "drop it: it says when the same request would pass", "Vary": "drop it: cors sets it",
	"Ratelimit": "the dialect says which fields there are", "Ratelimit-Policy": "the dialect says which fields there are",
}

func (d *decoder) header(x *Denied, f Field, t *trail) {
	name := http.CanonicalHeaderKey(f.Name)
	own := ownHeaders[name]
	if strings.HasPrefix(name, "Access-Control-") {
		own = "write cors: true, or the origins: cors: [https://app.example.com]"
	}
	twice := slices.ContainsFunc(x.Headers, func(h Header) bool { return h.Name == name })
	switch {
	case f.Name == "" || len(f.Name) > maxName || strings.Trim(f.Name, token) != "":
		d.failAt(f.Line, f.Column, t, "letters, digits and hyphens, at most 64", "%q is no name of a header", wording.Shorten(f.Name))
		return
	case own != "":
		d.failAt(f.Line, f.Column, t, own, "an answer has its own %s", name)
		return
	case twice:
		d.failAt(f.Line, f.Column, t, "names of headers are the same in any case", "the header %s twice", name)
		return
	}
	value := d.filled(f.Value, t, maxValue)
	if value == "" || value != strings.TrimSpace(value) || strings.Trim(value, printable+" ") != "" {
		d.fail(f.Value, t, "printable ASCII without line breaks, and no blank at either end", "%q is no value of a header", wording.Shorten(value))
	}
	x.Headers = append(x.Headers, Header{name, value})
}

func (d *decoder) filled(n *Node, t *trail, most int) string {
	if n.Kind != Number && !d.want(n, t, String, "") {
		return ""
	}
	if len(n.Value) > most {
		d.fail(n, t, "", "%d bytes: at most %d", len(n.Value), most)
	}
	if i := strings.IndexFunc(n.Value, func(c rune) bool { return c < ' ' && !strings.ContainsRune("\t\r\n", c) || c == 0x7f }); i >= 0 {
		d.fail(n, t, "drop it", "a control character")
	}
	for rest := n.Value; ; {
		_, after, found := strings.Cut(rest, "{")
		if !found {
			return n.Value
		}
		name, _, closed := strings.Cut(after, "}")
		word := "{" + name + "}"
		if closed && name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.-") == "" && !slices.Contains(placeholders, word) {
			d.fail(n, t, suggest(word, placeholders), "unknown placeholder %q", word)
			return n.Value
		}
		rest = after
	}
}

// cors reads which pages may read a denial; nil if none.
func (d *decoder) cors(n *Node, t *trail) *CORS {
	const hint = "true for any origin, or origins such as [https://app.example.com], whose pages may send cookies"
	if n.Kind == Bool && d.visit(n, t) {
		if n.True() {
			return new(CORS)
		}
		return nil
	}
	c := new(CORS)
	d.each(n, t, func(n *Node, t *trail) {
		s, ok := d.text(n, t, hint)
		if !ok {
			return
		}
		if u, err := url.Parse(s); err != nil || u.Scheme == "" || u.Host == "" || s != strings.ToLower(u.Scheme+"://"+u.Host) || len(s) > maxOrigin {
			d.fail(n, t, "a scheme and a host in lower case, such as https://app.example.com or http://localhost:3000", "%q is no origin", wording.Shorten(s))
		}
		c.Origins = append(c.Origins, s)
	})
	if len(c.Origins) == 0 && n.Kind == List && len(n.Items) == 0 {
		d.fail(n, t, hint, "no origins")
	}
	return c
}
