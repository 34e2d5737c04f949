package rulesfile

import (
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stint-dev/stint/internal/ports"
	"github.com/stint-dev/stint/internal/wording"
)

// A JWT says how tokens are verified, whose claims are the attributes jwt.NAME.
type JWT struct {
	// Header is the name of the header that carries the token, in lower case.
	Header string
	// JWKS says where the keys are: a URL, by https or on this machine, or the absolute path
	// of a file.
	JWKS string
	// Issuer is the iss that a token must have; "" allows any.
	Issuer string
	// Audience lists values of aud, one of which a token must have. If it is empty, a token
	// must have no aud.
	Audience []string
	// Algorithms are those by which a token may be signed. The algorithm none is never among
	// them.
	Algorithms []string
}

// JWT returns what the file says of tokens; nil if nothing. The caller must not change it.
func (f *File) JWT() *JWT { return f.jwt }

// publicKeys are the algorithms of a file that lists none: with their keys one can verify,
// but not sign.
var publicKeys = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// sharedSecrets are algorithms by which whoever can verify can also sign.
var sharedSecrets = []string{"HS256", "HS384", "HS512"}

func (d *decoder) jwt(n *Node, t *trail) *JWT {
	const hint = `such as {"jwks": "https://id.example.com/jwks.json", "issuer": "https://id.example.com/", "audience": "api"}`
	j := &JWT{Header: "authorization"}
	var algorithms *Node
	for _, f := range d.fields(n, t, hint, jwtFields...) {
		switch at := t.in(f.Name); f.Name {
		case "header":
			j.Header = d.tokenHeader(f.Value, at)
		case "jwks":
			j.JWKS = d.jwks(f.Value, at)
		case "issuer":
			j.Issuer = d.nonEmpty(f.Value, at, "what tokens have as iss")
		case "audience":
			d.each(f.Value, at, func(n *Node, t *trail) { j.Audience = append(j.Audience, d.nonEmpty(n, t, "what tokens have as aud")) })
		case "algorithms":
			algorithms = f.Value
			d.each(f.Value, at, func(n *Node, t *trail) { j.Algorithms = append(j.Algorithms, d.algorithm(n, t)) })
		}
	}
	if n.Kind == MapKind && !slices.ContainsFunc(n.Fields, func(f Field) bool { return f.Name == "jwks" }) {
		d.fail(n, t, hint, "no jwks, which has the keys that verify tokens")
	}
	secret := slices.ContainsFunc(j.Algorithms, func(name string) bool { return slices.Contains(sharedSecrets, name) })
	switch {
	case algorithms == nil:
		j.Algorithms = publicKeys
	case len(j.Algorithms) == 0:
		d.fail(algorithms, t.in("algorithms"), "leave the field out for all with public keys", "no algorithm")
	case secret && j.JWKS != "" && !filepath.IsAbs(j.JWKS):
		d.fail(algorithms, t.in("algorithms"), "jwks: names a file that only stint can read", "HS… verify by a secret, and whoever has it can sign: none is fetched from a URL")
	}
	return j
}

func (d *decoder) nonEmpty(n *Node, t *trail, what string) string {
	s, ok := d.text(n, t, what)
	if ok && s == "" {
		d.fail(n, t, "leave the field out if tokens have none", "empty: want %s", what)
	}
	return s
}

func (d *decoder) tokenHeader(n *Node, t *trail) string {
	const hint = "the name of a header alone, such as authorization"
	s, ok := d.text(n, t, hint)
	if !ok {
		return ""
	}
	name := strings.ToLower(s)
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" || slices.Contains([]string{"host", "cookie", "connection"}, name) {
		d.fail(n, t, hint, "%q is no header that has a token", wording.Shorten(s))
	}
	return name
}

func (d *decoder) jwks(n *Node, t *trail) string {
	const hint = "a URL, such as https://id.example.com/jwks.json, or the absolute path of a file"
	s, ok := d.text(n, t, hint)
	if !ok || filepath.IsAbs(s) {
		return s
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		d.fail(n, t, hint, "neither a URL nor an absolute path")
	case u.User != nil:
		d.fail(n, t, hint, "a URL with a user is shown in many places")
	case ports.Check(u) != nil:
		d.fail(n, t, hint, "%s", ports.Check(u))
	case u.Scheme == "http" && !local(u.Hostname()):
		d.fail(n, t, "use https", "whoever is in between could give stint keys of their own")
	}
	return s
}

func local(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

func (d *decoder) algorithm(n *Node, t *trail) string {
	known := slices.Concat(publicKeys, sharedSecrets)
	s, ok := d.text(n, t, "one of "+strings.Join(known, ", "))
	switch {
	case !ok || slices.Contains(known, s):
	case strings.EqualFold(s, "none"):
		d.fail(n, t, "drop it", "%q: anybody could write such a token", s)
	default:
		d.fail(n, t, suggest(s, known), "unknown algorithm %q", wording.Shorten(s))
	}
	return s
}
