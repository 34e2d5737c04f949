package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stint-dev/stint/httplimit"
)

// request returns a GET from a peer, with headers as "Name: value".
func request(peer string, headers ...string) *http.Request {
	return requestOf(http.MethodGet, "/", peer, headers...)
}

func requestOf(method, target, peer string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr = peer
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	return r
}

var clientTests = []struct {
	name    string
	client  httplimit.ClientIP
	peer    string
	headers []string
	want    string // "" for none
}{
	{"peer", httplimit.ClientIP{}, "192.0.2.7:1234", nil, "192.0.2.7"},
	{"peer without port", httplimit.ClientIP{}, "192.0.2.7", nil, "192.0.2.7"},
	{"peer of IPv6", httplimit.ClientIP{}, "[2001:db8::1]:80", nil, "2001:db8::1"},
	{"peer with a zone", httplimit.ClientIP{}, "[fe80::1%eth0]:80", nil, "fe80::1"},
	{"peer mapped", httplimit.ClientIP{}, "[::ffff:192.0.2.7]:80", nil, "192.0.2.7"},
	{"peer of a Unix socket", httplimit.ClientIP{}, "@", []string{"X-Forwarded-For: 1.2.3.4"}, ""},
	{"peer empty", httplimit.ClientIP{}, "", []string{"X-Forwarded-For: 1.2.3.4"}, ""},
	{"Unix socket trusted", httplimit.ClientIP{TrustUnix: true}, "@", []string{"X-Forwarded-For: 6.6.6.6, 1.2.3.4"}, "1.2.3.4"},
	{"Unix trusted, peer is not", httplimit.ClientIP{TrustUnix: true}, "192.0.2.7:1", []string{"X-Forwarded-For: 1.2.3.4"}, "192.0.2.7"},

	{"nobody trusted: X-Forwarded-For", httplimit.ClientIP{}, "192.0.2.7:1", []string{"X-Forwarded-For: 1.2.3.4"}, "192.0.2.7"},
	{"nobody trusted: the rest (gin, echo v4, chi RealIP)", httplimit.ClientIP{}, "192.0.2.7:1",
		[]string{"X-Real-Ip: 1.2.3.4", "True-Client-Ip: 1.2.3.4", "Forwarded: for=1.2.3.4", "Cf-Connecting-Ip: 1.2.3.4", "Fastly-Client-Ip: 1.2.3.4", "X-Azure-Clientip: 1.2.3.4"}, "192.0.2.7"},
	{"trusted, no header", behind(), "10.0.0.1:1", nil, "10.0.0.1"},
	{"trusted", behind(), "10.0.0.1:1", []string{"X-Forwarded-For: 1.2.3.4"}, "1.2.3.4"},
	{"trusted mapped", behind(), "[::ffff:10.0.0.1]:1", []string{"X-Forwarded-For: ::ffff:102:304"}, "1.2.3.4"},
	{"peer not trusted (realclientip-go v1.0.0)", behind(), "192.0.2.7:1", []string{"X-Forwarded-For: 1.2.3.4"}, "192.0.2.7"},
	{"leftmost is the client's own word", behind(), "10.0.0.1:1", []string{"X-Forwarded-For: 6.6.6.6, 1.2.3.4"}, "1.2.3.4"},
	{"chain", behind(), "10.0.0.1:1", []string{"X-Forwarded-For: 6.6.6.6, 1.2.3.4, 10.0.0.3, 10.0.0.2"}, "1.2.3.4"},
	{"first line is the client's own word (Traefik depth, go-grpc-middleware)", behind(), "10.0.0.1:1",
		[]string{"X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 1.2.3.4"}, "1.2.3.4"},
	{"lines in order", behind(), "10.0.0.1:1",
		[]string{"X-Forwarded-For: 6.6.6.6, 1.2.3.4", "X-Forwarded-For: 10.0.0.3", "X-Forwarded-For: 10.0.0.2"}, "1.2.3.4"},
	{"all trusted", behind(), "10.0.0.1:1", []string{"X-Forwarded-For: 10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
	{"unparsable stops (raw header as key: Fiber)", behind(), "10.0.0.1:1", []string{"X-Forwarded-For: 1.2.3.4, nonsense"}, "10.0.0.1"},
	{"unparsable behind trusted stops", behind(), "10.0.0.1:1", []string{"X-Forwarded-For: 1.2.3.4, x, 10.0.0.2"}, "10.0.0.1"},
	{"unparsable left of the client is not looked at", behind(), "10.0.0.1:1", []string{"X-Forwarded-For: <script>, 1.2.3.4"}, "1.2.3.4"},
	{"empty header (tollbooth: no limit at all)", behind(), "10.0.0.1:1", []string{"X-Forwarded-For: "}, "10.0.0.1"},
	{"empty elements", behind(), "10.0.0.1:1", []string{"X-Forwarded-For: ,, 1.2.3.4 ,\t,"}, "1.2.3.4"},
	{"ports and brackets", behind(), "10.0.0.1:1", []string{"X-Forwarded-For: 1.2.3.4:5678, [2001:db8:ffff::1]:443"}, "1.2.3.4"},
	{"octal and short forms", behind(), "10.0.0.1:1", []string{"X-Forwarded-For: 127.1"}, "10.0.0.1"},
	{"Unicode digits", behind(), "10.0.0.1:1", []string{"X-Forwarded-For: \uff11.2.3.4"}, "10.0.0.1"},
	{"white space that is not HTTP's", behind(), "10.0.0.1:1", []string{"X-Forwarded-For: \u00a01.2.3.4"}, "10.0.0.1"},
	{"underscores (Traefik CVE-2026-39858)", behind(), "10.0.0.1:1", []string{"X_Forwarded_For: 6.6.6.6", "X-Forwarded-For: 1.2.3.4"}, "1.2.3.4"},
	{"underscores alone", behind(), "10.0.0.1:1", []string{"X_Forwarded_For: 6.6.6.6"}, "10.0.0.1"},
	{"hop-by-hop (Traefik CVE-2024-45410)", behind(), "10.0.0.1:1", []string{"Connection: X-Forwarded-For, close", "X-Forwarded-For: 1.2.3.4"}, "1.2.3.4"},
	{"other headers while one is chosen", behind(), "10.0.0.1:1",
		[]string{"X-Real-Ip: 6.6.6.6", "Forwarded: for=6.6.6.6", "X-Forwarded-For: 1.2.3.4"}, "1.2.3.4"},
	{"too many hops", behind(), "10.0.0.1:1", []string{"X-Forwarded-For: 1.2.3.4" + strings.Repeat(", 10.0.0.2", 64)}, "10.0.0.1"},
	{"trusted given as mapped", httplimit.ClientIP{Trusted: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}}, "10.0.0.1:1",
		[]string{"X-Forwarded-For: 1.2.3.4"}, "1.2.3.4"},

	{"names have no case: X-Forwarded-For", by("x-forwarded-for"), "10.0.0.1:1", []string{"X-Forwarded-For: 6.6.6.6, 1.2.3.4", "X-Forwarded-For: 10.0.0.2"}, "1.2.3.4"},
	{"names have no case: Forwarded", by("forwarded"), "10.0.0.1:1", []string{"Forwarded: for=1.2.3.4;proto=http"}, "1.2.3.4"},
	{"X-Real-IP", by("X-Real-IP"), "10.0.0.1:1", []string{"X-Real-Ip: 1.2.3.4", "X-Forwarded-For: 6.6.6.6"}, "1.2.3.4"},
	{"X-Real-IP: the last line (Fiber CVE-2026-45045)", by("X-Real-IP"), "10.0.0.1:1", []string{"X-Real-Ip: 6.6.6.6", "X-Real-Ip: 1.2.3.4"}, "1.2.3.4"},
	{"X-Real-IP: a list is no address", by("X-Real-IP"), "10.0.0.1:1", []string{"X-Real-Ip: 1.2.3.4, 5.6.7.8"}, "10.0.0.1"},
	{"X-Real-IP: unparsed (gin TrustedPlatform)", by("X-Real-IP"), "10.0.0.1:1", []string{"X-Real-Ip: anything"}, "10.0.0.1"},
	{"X-Real-IP: missing", by("X-Real-IP"), "10.0.0.1:1", []string{"X-Forwarded-For: 1.2.3.4"}, "10.0.0.1"},

	{"Forwarded", by("Forwarded"), "10.0.0.1:1", []string{"Forwarded: for=1.2.3.4;proto=http;by=203.0.113.43"}, "1.2.3.4"},
	{"Forwarded: IPv6", by("Forwarded"), "10.0.0.1:1", []string{`Forwarded: For="[2001:db8:cafe::17]:4711"`}, "2001:db8:cafe::17"},
	{"Forwarded: zone", by("Forwarded"), "10.0.0.1:1", []string{`Forwarded: for="[fe80::1%25eth0]:4711"`}, "fe80::1"},
	{"Forwarded: lines", by("Forwarded"), "10.0.0.1:1", []string{"Forwarded: for=6.6.6.6, for=1.2.3.4", "Forwarded: for=10.0.0.2"}, "1.2.3.4"},
	{"Forwarded: unquoted port", by("Forwarded"), "10.0.0.1:1", []string{"Forwarded: for=1.2.3.4:80"}, "1.2.3.4"},
	{"Forwarded: quoted comma (heimdall CVE-2026-57210)", by("Forwarded"), "10.0.0.1:1",
		[]string{`Forwarded: for=1.2.3.4;host="a, for=6.6.6.6"`}, "1.2.3.4"},
	{"Forwarded: quoted quote", by("Forwarded"), "10.0.0.1:1", []string{`Forwarded: for=1.2.3.4;host="a\", for=6.6.6.6"`}, "1.2.3.4"},
	{"Forwarded: quoted semicolon", by("Forwarded"), "10.0.0.1:1", []string{`Forwarded: host="a;for=6.6.6.6";for=1.2.3.4`}, "1.2.3.4"},
	{"Forwarded: escapes", by("Forwarded"), "10.0.0.1:1", []string{`Forwarded: for="1\.2.3\.4"`}, "1.2.3.4"},
	{"Forwarded: open quote", by("Forwarded"), "10.0.0.1:1", []string{`Forwarded: for=1.2.3.4;host="a`}, "10.0.0.1"},
	{"Forwarded: twice in one element", by("Forwarded"), "10.0.0.1:1", []string{"Forwarded: for=6.6.6.6;for=1.2.3.4"}, "10.0.0.1"},
	{"Forwarded: unknown", by("Forwarded"), "10.0.0.1:1", []string{"Forwarded: for=6.6.6.6, for=unknown"}, "10.0.0.1"},
	{"Forwarded: element without for", by("Forwarded"), "10.0.0.1:1", []string{"Forwarded: for=6.6.6.6, proto=https"}, "10.0.0.1"},
	{"Forwarded: space around =", by("Forwarded"), "10.0.0.1:1", []string{"Forwarded: for = 6.6.6.6"}, "10.0.0.1"},
	{"Forwarded: all trusted", by("Forwarded"), "10.0.0.1:1", []string{"Forwarded: for=10.0.0.4,for=10.0.0.3"}, "10.0.0.4"},
	{"Forwarded: a line of the client's that is none", by("Forwarded"), "10.0.0.1:1", []string{`Forwarded: "`, "Forwarded: for=1.2.3.4"}, "1.2.3.4"},
	{"Forwarded: the same in one line", by("Forwarded"), "10.0.0.1:1", []string{`Forwarded: ", for=1.2.3.4`}, "1.2.3.4"},
	{"Forwarded: a backslash before it", by("Forwarded"), "10.0.0.1:1", []string{`Forwarded: \, for="1.2.3.4:1";host="a,b"`}, "1.2.3.4"},
	{"Forwarded: twice in the client's element", by("Forwarded"), "10.0.0.1:1", []string{"Forwarded: for=1;for=2", "Forwarded: for=1.2.3.4"}, "1.2.3.4"},
	{"Forwarded: many elements of the client's", by("Forwarded"), "10.0.0.1:1",
		[]string{"Forwarded: for=6.6.6.6" + strings.Repeat(",for=10.0.0.2", 64), "Forwarded: for=1.2.3.4"}, "1.2.3.4"},
	{"Forwarded: malformed behind trusted stops", by("Forwarded"), "10.0.0.1:1", []string{"Forwarded: for=1.2.3.4, for=, for=10.0.0.2"}, "10.0.0.1"},
	{"Forwarded: two elements without a comma", by("Forwarded"), "10.0.0.1:1", []string{"Forwarded: for=6.6.6.6 for=1.2.3.4"}, "10.0.0.1"},
	{"Forwarded: too many", by("Forwarded"), "10.0.0.1:1", []string{"Forwarded: for=1.2.3.4" + strings.Repeat(",for=10.0.0.2", 64)}, "10.0.0.1"},
}

func behind() httplimit.ClientIP {
	return httplimit.ClientIP{Trusted: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:ffff::/48"),
	}}
}

func by(header string) httplimit.ClientIP {
	c := behind()
	c.Header = header
	return c
}

// TestClientAddr tries what the documentation of ClientIP says, and bypasses that other
// projects have had.
func TestClientAddr(t *testing.T) {
	for _, test := range clientTests {
		t.Run(test.name, func(t *testing.T) {
			addr, ok := test.client.Addr(request(test.peer, test.headers...))
			got := ""
			if ok {
				got = addr.String()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestClientExplain(t *testing.T) {
	for _, test := range []struct {
		client  httplimit.ClientIP
		peer    string
		header  string
		explain string
	}{
		{behind(), "10.0.0.1:1", "X-Forwarded-For: 6.6.6.6, 1.2.3.4, 10.0.0.2",
			"\"10.0.0.1:1\": trusted\n\" 10.0.0.2\": trusted\n\" 1.2.3.4\": not trusted\nthe client is 1.2.3.4\n"},
		{behind(), "10.0.0.1:1", "X-Forwarded-For: \u0007x", "\"10.0.0.1:1\": trusted\n\"\\ax\": no address\n\"10.0.0.1:1\": the peer, since no header says better\nthe client is 10.0.0.1\n"},
		{behind(), "192.0.2.7:1", "X-Forwarded-For: 1.2.3.4", "\"192.0.2.7:1\": not trusted\nthe client is 192.0.2.7\n"},
		{behind(), "@", "X-Forwarded-For: 1.2.3.4", "\"@\": a peer without address, not trusted\nthere is no client address\n"},
		{by("X-Real-IP"), "10.0.0.1:1", "X-Real-Ip: 1.2.3.4", "\"10.0.0.1:1\": trusted\n\"1.2.3.4\": the word of X-Real-IP\nthe client is 1.2.3.4\n"},
		{by("Forwarded"), "10.0.0.1:1", "Forwarded: for=1.2.3.4", "\"10.0.0.1:1\": trusted\n\"1.2.3.4\": not trusted\nthe client is 1.2.3.4\n"},
	} {
		if got := test.client.Explain(request(test.peer, test.header)); got != test.explain {
			t.Errorf("%s, %s: got\n%s\nwant\n%s", test.peer, test.header, got, test.explain)
		}
	}
}

func TestIPKey(t *testing.T) {
	for _, test := range []struct {
		client httplimit.ClientIP
		peer   string
		want   string
	}{
		{httplimit.ClientIP{}, "192.0.2.7:1234", "192.0.2.7"},
		{httplimit.ClientIP{}, "192.0.2.7", "192.0.2.7"},
		{httplimit.ClientIP{}, "[::ffff:192.0.2.7]:1", "192.0.2.7"},
		{httplimit.ClientIP{}, "[2001:db8:1:2:3::4]:1", "2001:db8:1:2::/64"},
		{httplimit.ClientIP{}, "[2001:db8:1:2:ffff::4%eth0]:1", "2001:db8:1:2::/64"},
		{httplimit.ClientIP{IPv6Bits: 48, IPv4Bits: 24}, "[2001:db8:1:2:3::4]:1", "2001:db8:1::/48"},
		{httplimit.ClientIP{IPv6Bits: 48, IPv4Bits: 24}, "192.0.2.7:1", "192.0.2.0/24"},
		{httplimit.ClientIP{IPv6Bits: 128}, "[2001:db8::4]:1", "2001:db8::4"},
		{httplimit.ClientIP{IPv6Bits: 1000, IPv4Bits: -1}, "[2001:db8::4]:1", "2001:db8::/64"},
	} {
		key := httplimit.IPKey(test.client)
		for range 2 { // the second time, the key's text is remembered
			if got, ok := key(request(test.peer)); got != test.want || !ok {
				t.Errorf("%+v, peer %s: key %q, %v; want %q", test.client, test.peer, got, ok, test.want)
			}
		}
	}
	if key, ok := httplimit.IPKey(httplimit.ClientIP{})(request("@")); ok {
		t.Errorf("a peer without address has the key %q", key)
	}
}

func TestKeys(t *testing.T) {
	r := request("192.0.2.7:1", "X-Api-Key: k1", "X-Api-Key: k2", "Cookie: session=s1; empty=; session=s2", "X-Empty: ")
	r.Pattern = "GET /users/{id}"
	api := httplimit.HeaderKey("x-api-key")
	for name, test := range map[string]struct {
		key  httplimit.Key
		want string
		ok   bool
	}{
		"header":        {api, "k1", true},
		"header empty":  {httplimit.HeaderKey("X-Empty"), "", false},
		"header none":   {httplimit.HeaderKey("X-None"), "", false},
		"cookie":        {httplimit.CookieKey("session"), "s1", true},
		"cookie empty":  {httplimit.CookieKey("empty"), "", false},
		"cookie none":   {httplimit.CookieKey("none"), "", false},
		"route":         {httplimit.RouteKey(), "GET /users/{id}", true},
		"joined":        {httplimit.Join(api, httplimit.RouteKey()), "2:k115:GET /users/{id}", true},
		"joined, lacks": {httplimit.Join(api, httplimit.CookieKey("none")), "", false},
	} {
		if got, ok := test.key(r); got != test.want || ok != test.ok {
			t.Errorf("%s: %q, %v; want %q, %v", name, got, ok, test.want, test.ok)
		}
	}
	one := func(s string) httplimit.Key { return func(*http.Request) (string, bool) { return s, true } }
	a, _ := httplimit.Join(one("a"), one("b1:c"))(r)
	b, _ := httplimit.Join(one("a1:b"), one("c"))(r)
	if a == b {
		t.Errorf("two keys meet: %q", a)
	}
}

// FuzzAddress: an address from headers is in plain form, and headers are not believed from a
// peer that is not trusted.
func FuzzAddress(f *testing.F) {
	for _, test := range clientTests {
		all := ""
		for _, h := range test.headers {
			_, value, _ := strings.Cut(h, ": ")
			all += value
		}
		f.Add(test.peer, all)
	}
	f.Fuzz(func(t *testing.T, peer, value string) {
		for _, header := range []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip"} {
			r := request(peer)
			r.Header[header] = []string{value}
			plain, plainOK := httplimit.ClientIP{}.Addr(r)
			c := by(header)
			addr, ok := c.Addr(r)
			if ok && (!addr.IsValid() || addr.Is4In6() || addr.Zone() != "") {
				t.Errorf("%s %q: %v is not in its one form", header, value, addr)
			}
			trusted := false
			for _, p := range c.Trusted {
				trusted = trusted || p.Contains(plain)
			}
			if !trusted && (addr != plain || ok != plainOK) {
				t.Errorf("peer %q is not trusted, but %s %q made it %v", peer, header, value, addr)
			}
			if again, _ := c.Addr(request("[" + addr.String() + "]:80")); ok && addr.Is6() && again != addr {
				t.Errorf("%v is read back as %v", addr, again)
			}
		}
	})
}

// TestNoKey: a key that no request can have is an error of the program, or all clients would share one.
func TestNoKey(t *testing.T) {
	for name, make := range map[string]func(){
		"header":       func() { httplimit.HeaderKey("X-Api-Key:") },
		"header blank": func() { httplimit.HeaderKey("X Api Key") },
		"header empty": func() { httplimit.HeaderKey("") },
		"host":         func() { httplimit.HeaderKey("host") },
		"cookie":       func() { httplimit.CookieKey("a b") },
		"cookie empty": func() { httplimit.CookieKey("") },
		"join":         func() { httplimit.Join() },
		"join nil":     func() { httplimit.Join(httplimit.RouteKey(), nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			make()
		}()
	}
}
