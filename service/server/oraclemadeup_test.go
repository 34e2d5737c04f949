package server_test

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/stint-dev/stint/service/server/wire"
)

// ofHTTP is what HTTP carries.
var ofHTTP = []string{"path", "host", "method", "header", "cookie", "query"}

// attacks are requests each of which has passed some proxy's rules, or would pass those
// of one that reads HTTP/2 as HTTP/1.1, by what they vary.
func attacks(varies []string) (all []wire.Request) {
	for kind, some := range map[string][]wire.Request{
		"path": {
			wire.Get("a:http://h/login/in"), wire.Get("a:http://admin.internal/x"), wire.Get("//h/login/in"), wire.Get("/../login/in"), wire.Get("/login/in "), wire.Get("/login/in HTTP/1.0"),
			wire.Get("/x/y", ":path", "/login/in"), wire.Get("/LOGIN/in"), wire.Get("/login/in;x"), wire.Get("/login%2fin"), wire.Get("/login\\in"),
		},
		"host": {
			wire.Get("/x/y").With(":authority", "admin.internal:80:80"), wire.Get("/x/y").With(":authority", "admin.internal."), wire.Get("/x/y", "host", "admin.internal"),
			wire.Get("/x/y", ":authority", "admin.internal"), wire.Get("http://admin.internal/x"),
		},
		"method": {
			wire.Get("/x/y").With(":method", "delete"), wire.Get("/x/y").With(":method", "DELETE "), wire.Get("/x/y", "x-http-method-override", "DELETE").With(":method", "POST"),
			wire.Get("/x/y", "connection", "Upgrade, HTTP2-Settings", "upgrade", "h2c", "http2-settings", "AAMAAABkAAQAoAAAAAIAAAAA"),
		},
		"query": {
			wire.Get("/?x=1;action=login"), wire.Get("/?action=a&action=login"), wire.Get("/x?action=login "), wire.Get("/x?action=login   "), wire.Get("/x?action=login HTTP/1.0"), wire.Get("/x?action=login\t"),
			wire.Get("/x?[action]=login"), wire.Get("/x?[]action=login"), wire.Get("/x?[action=login"), wire.Get("/x?]action=login"), wire.Get("/x?action]=login"), wire.Get("/x?action=x&[action=login"),
			wire.Get("/x?api.key=login"), wire.Get("/x?api%20key=login"), wire.Get("/x?api+key=login"), wire.Get("/x?api[key=login"), wire.Get("/x??action=login"), wire.Get("/x?Action=login"),
		},
		"cookie": {
			wire.Get("/x/y", "cookie", `session="\147ood"`), wire.Get("/x/y", "cookie", "session = good"), wire.Get("/x/y", "cookie", "x=1, session=good"), wire.Get("/x/y", "cookie", "session=a; session=good"), wire.Get("/x/y", "cookie", "session; session=good"), wire.Get("/x/y", "cookie", "a=b;\tsession=good"), wire.Get("/x/y", "cookie", "user.id=good"),
			wire.Get("/x/y", "cookie", "user id=good"), wire.Get("/x/y", "cookie", "user[id=good"), wire.Get("/x/y", "cookie", "session=junk", "cookie", "session=good"), wire.Get("/x/y", "cookie", "session=good "), wire.Get("/x/y", "cookie", "a=b", "cookie", "session=good"), wire.Get("/x/y", "cookie", "Session=good"),
		},
		"header": {
			wire.Get("/x/y", "x-api-key", "junk", "x-api_key", "good", "connection", "x-api-key"), wire.Get("/x/y", "x-api-key", "junk", "x-api-key", "good"), wire.Get("/x/y", "x_api_key", "good"), wire.Get("/x/y", "x-api-key", "good "), wire.Get("/x/y", "x-api-key", "\tgood"),
			wire.Get("/x/y", "x-api-key", "good\xa0"), wire.Get("/x/y", "X-Api-Key", "good"), wire.Get("/x/y", "connection", "x-api-key", "x-api-key", "good"), wire.Get("/x/y", "transfer-encoding", "chunked"), wire.Get("/x/y", "x-api-key ", "good"), wire.Get("/x/y", "x-api-key", "junk\r\n good"),
		},
		"key": {wire.Request{}.And("line", `"good"`), wire.Request{}.And("line", "good\t"), wire.Request{}.And("line", "good\x00"), wire.Request{}.And("array", "good", "length", "+4")},
	} {
		if slices.Contains(varies, kind) {
			all = append(all, some...)
		}
	}
	return all
}

// Pieces of what is made up.
var (
	pathPieces    = []string{"/", "/", "/", "//", "login", "login", "login/in", "login/in", "in", "%6cogin", "l", "ogin", "%6C", "LOGIN", ".", "..", "%2e", "%2f", "\\", "%5c", ";", ";x=1", "?", "#", "a:", "http:", "http://", "h", "admin.internal", "%00", "%", "%zz", "*", "@", ":80", "%25", "%c0%af", "\"", "'", "|", "~", "%20", " ", "\t", "\xa0", "+", "[", "]", "x"}
	hostPieces    = []string{"admin.internal", "admin.internal", "Admin.INTERNAL", "admin", "internal", ".", ":80", ":", ":443", ",", "@", "h", "[::1]", "/", "%61", "_", ";", "#", "\t", " ", "\xa0"}
	methodPieces  = []string{"GET", "POST", "DELETE", "DELETE", "delete", "Delete", " ", "\t", "DEL", "ETE", "\x00", "_"}
	overrideNames = []string{"x-http-method-override", "x_http_method_override", "x-http-method", "X-Method-Override"}
	headerNames   = []string{"x-api-key", "x-api-key", "x-api-key", "x-api-key", "x_api_key", "x-api_key", "x.api-key", "X-Api-Key", "x-api-key ", "connection", "x-other", "x-api-keys"}
	headerPieces  = []string{"good", "good", "good", "junk", "", " ", "\t", "\xa0", "\x85", "é", ",", "\"", "\r\n ", "X-Api-Key", "close, x-api_key"}
	cookiePieces  = []string{"session", "session", "user_id", "user.id", "user", "id", "=", "=", "good", "good", "junk", ";", ";", "; ", " ", ",", "\"", "\\147", "\\", "x", "a=b", "session=good", "session=junk", "Session", "\t", "%67", "%65", "$", "{", "[", "'", "\x80", "Path", "."}
	queryPieces   = []string{"action", "action", "api_key", "api.key", "api", "key", "=", "=", "login", "login", "junk", "&", "&", ";", "%61ction", "+", "[]", "[", "]", "#", "%00", "x=1", "%6cogin", "action=login", "action=junk", "?", "%", "%zz", "%26", "%3d", "/", " ", "\t", "%20", ".", "%5B", "%2e", "\xa0", "Action"}
	lengths       = []string{"", "", "", "", "04", "+4", "4 ", "5", "3", "-1", "0x4", "4\n"}
	keyPieces     = []string{"good", "good", "good", "junk", " ", "\t", "\"", "'", "\\x67", "\\", "\x00", "\r", "\v", "\f", "\xa0", "é", "g", "ood"}
)

// madeUp returns a request that varies one part.
func madeUp(r *rand.Rand, varies []string) wire.Request {
	some := func(pieces []string, most int) string {
		var b strings.Builder
		for range 1 + r.IntN(most) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		return b.String()
	}
	request := wire.Get("/x/y")
	switch varies[r.IntN(len(varies))] {
	case "path":
		target := some(pathPieces, 5)
		if r.IntN(4) > 0 {
			target = "/" + target
		}
		return wire.Get(target)
	case "host":
		return request.With(":authority", some(hostPieces, 4))
	case "method":
		request = request.With(":method", some(methodPieces, 2))
		if r.IntN(2) == 0 {
			request = request.And(some(overrideNames, 1), some(methodPieces, 2))
		}
	case "header":
		for range 1 + r.IntN(3) {
			request = request.And(some(headerNames, 1), some(headerPieces, 2))
		}
	case "cookie":
		request = request.And("cookie", some(cookiePieces, 8))
		if r.IntN(6) == 0 {
			request = request.And("cookie", some(cookiePieces, 4))
		}
	case "query":
		return wire.Get("/x?" + some(queryPieces, 7))
	default: // a key, as a line or an array of RESP
		return wire.Request{}.And(some([]string{"line", "array"}, 1), some(keyPieces, 3), "length", some(lengths, 1))
	}
	return request
}
