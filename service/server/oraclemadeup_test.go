package server_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/stint-dev/stint/service/testkit/wire"
)

// ofHTTP is what HTTP carries.
var ofHTTP = []string{"path", "host", "method", "header", "cookie", "query"}

// withBodies is what it carries to servers that read bodies.
var withBodies = append(ofHTTP[:len(ofHTTP):len(ofHTTP)], "body")

// places are where enumerated pieces stand, as @, by what they vary.
var places = map[string][]string{
	"path":   {"/@login/in", "/login@/in", "/login/@in", "/login/in@", "@/login/in"},
	"host":   {"@admin.internal", "admin.internal@", "admin@.internal", "admin@internal"},
	"method": {"@DELETE", "DELETE@"},
	"header": {"x-api-key: @good", "x-api-key: good@", "x-api-key@: good", "x@api-key: good", "x-api-key: x@good"},
	"cookie": {"@user_id=good", "a=b;@user_id=good", "a=b; @user_id=good", "a=b@user_id=good", "user_id@=good", "user_id=@good", "user_id=good@", "user@id=good", "a=@; user_id=good", "@user_id@=@good@"},
	"query":  {"/x?@action=login", "/x?a=b@action=login", "/x?action@=login", "/x?action=@login", "/x?action=login@", "/x?api@key=login", "/x@action=login"},
	"body": {
		`json {"model":"good"}@`, `json @{"model":"good"}`, `json {@"model":"good"}`, `json {"@model":"good"}`, `json {"model@":"good"}`, `json {"model"@:"good"}`, `json {"model":@"good"}`,
		`json {"model":"good"@}`, `json {"x":1@"model":"good"}`, `json {"model":"@good"}`, `json@ {"model":"good"}`, `json {"x":"@","model":"good"}`,
		"x-www-form-urlencoded @model=good", "x-www-form-urlencoded x=1@model=good", "x-www-form-urlencoded model@=good", "x-www-form-urlencoded model=@good", "x-www-form-urlencoded@ model=good",
		`multipart@ model=good`, `multipart --b@Content-Disposition: form-data; name="model"`, `multipart --b@; name="model"`, `multipart --b; name=model@x`, `multipart --b; name="@model"`, `multipart --b; name="model@"`, `multipart --b;@name="model"`, `multipart --b; name@="model"`,
	},
}

// pieces are each byte as it is and encoded, and what some language takes for a blank.
var pieces = func() (all []string) {
	for c := range 256 {
		all = append(all, string([]byte{byte(c)}), fmt.Sprintf("%%%02x", c))
	}
	for c := rune(0x80); c <= 0xffff; c++ {
		if unicode.IsSpace(c) || unicode.Is(unicode.Cf, c) && c < 0x2070 || c >= 0x80 && c < 0xa0 || c == 0xfeff {
			all = append(all, string(c), url.QueryEscape(string(c)))
		}
	}
	return append(all, "\r\n", "\r\n ", "\x00\x00", "%c0%80", "%u0020", "%25%30%30", `\u0000`, `\u00a0`, `\`, `""`)
}()

// enumerated returns requests with each piece at each place.
func enumerated(varies []string) iter.Seq[wire.Request] {
	return func(yield func(wire.Request) bool) {
		for _, kind := range varies {
			for _, place := range places[kind] {
				for _, piece := range pieces {
					if !yield(placed(kind, strings.ReplaceAll(place, "@", piece))) {
						return
					}
				}
			}
		}
	}
}

// placed returns a request whose part of a kind is a text.
func placed(kind, text string) wire.Request {
	switch kind {
	case "path", "query":
		return wire.Get(text)
	case "host":
		return wire.Get("/x/y").With(":authority", text)
	case "method":
		return wire.Get("/x/y").With(":method", text)
	case "header":
		name, value, _ := strings.Cut(text, ": ")
		return wire.Get("/x/y", name, value)
	case "cookie":
		return wire.Get("/x/y", "cookie", text)
	}
	sort, body, _ := strings.Cut(text, " ")
	sort = "application/" + sort
	if kind, ok := strings.CutPrefix(sort, "application/multipart"); ok {
		sort = "multipart/form-data; boundary=b" + kind
	}
	if head, ok := strings.CutPrefix(body, "--b"); ok {
		if !strings.Contains(head, "Content-") {
			head = "\r\nContent-Disposition: form-data" + head
		}
		body = "--b" + head + "\r\n\r\ngood\r\n--b--\r\n"
	}
	return wire.Get("/x/y", "content-type", sort).With(":method", "POST").And(wire.Body, body)
}

// attacks are requests each of which has passed some proxy's rules, or would pass those
// of one that reads HTTP/2 as HTTP/1.1, by what they vary.
func attacks(varies []string) (all []wire.Request) {
	for kind, some := range map[string][]wire.Request{
		"path": {
			wire.Get("a:http://h/login/in"), wire.Get("a:http://admin.internal/x"), wire.Get("//h/login/in"), wire.Get("/../login/in"), wire.Get("/login/in "), wire.Get("/login/in HTTP/1.0"),
			wire.Get("/x/y", ":path", "/login/in"), wire.Get("/x/y", "x-original-url", "/login/in"), wire.Get("/x/y", "X_original_url", "/login/in"), wire.Get("/LOGIN/in"), wire.Get("/login/in;x"), wire.Get("/login%2fin"), wire.Get("/login\\in"),
		},
		"host": {
			wire.Get("/x/y").With(":authority", "admin.internal:80:80"), wire.Get("/x/y").With(":authority", "admin.internal."), wire.Get("/x/y", "host", "admin.internal"),
			wire.Get("/x/y", ":authority", "admin.internal"), wire.Get("http://admin.internal/x"), wire.Get("/x/y", "x-forwarded-host", "admin.internal"),
			wire.Get("/x/y", "X_Forwarded_Host", "admin.internal"), wire.Get("/x/y", "x-forwarded-host", "h", "x-forwarded-host", "admin.internal"), wire.Get("/x/y", "forwarded", "host=admin.internal"),
		},
		"method": {
			wire.Get("/x/y").With(":method", "delete"), wire.Get("/x/y").With(":method", "DELETE "), wire.Get("/x/y", "x-http-method-override", "DELETE").With(":method", "POST"),
			wire.Get("/x/y", "connection", "Upgrade, HTTP2-Settings", "upgrade", "h2c", "http2-settings", "AAMAAABkAAQAoAAAAAIAAAAA"),
		},
		"query": {
			wire.Get("/?x=1;action=login"), wire.Get("/?action=a&action=login"), wire.Get("/x?action=login "), wire.Get("/x?action=login   "), wire.Get("/x?action=login HTTP/1.0"), wire.Get("/x?action=login\t"),
			wire.Get("/x?[action]=login"), wire.Get("/x?[]action=login"), wire.Get("/x?[action=login"), wire.Get("/x?]action=login"), wire.Get("/x?action]=login"), wire.Get("/x?action=x&[action=login"),
			wire.Get("/x?api.key=login"), wire.Get("/x?api%20key=login"), wire.Get("/x?api+key=login"), wire.Get("/x?api[key=login"), wire.Get("/x??action=login"), wire.Get("/x?Action=login"),
			wire.Get("/x?action=%2BAGw-ogin", "content-type", "text/plain; charset=utf-7"), wire.Get("/x?%2BAGE-ction=login", "content-type", "x; charset=utf-7"),
		},
		"cookie": {
			wire.Get("/x/y", "cookie", `session="\147ood"`), wire.Get("/x/y", "cookie", "session = good"), wire.Get("/x/y", "cookie", "x=1, session=good"), wire.Get("/x/y", "cookie", "session=a; session=good"), wire.Get("/x/y", "cookie", "session; session=good"), wire.Get("/x/y", "cookie", "a=b;\tsession=good"), wire.Get("/x/y", "cookie", "user.id=good"),
			wire.Get("/x/y", "cookie", "user id=good"), wire.Get("/x/y", "cookie", "user[id=good"), wire.Get("/x/y", "cookie", "session=junk", "cookie", "session=good"), wire.Get("/x/y", "cookie", "session=good "), wire.Get("/x/y", "cookie", "a=b", "cookie", "session=good"), wire.Get("/x/y", "cookie", "Session=good"),
			wire.Get("/x/y", "cookie", "session=j:%22good%22"), wire.Get("/x/y", "cookie", "session=j%3A%22good%22"),
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
	hostNames     = []string{"x-forwarded-host", "x-forwarded-host", "X_Forwarded_Host", "x.forwarded-host", "x-forwarded-prefix", "forwarded", "x-host"}
	overrideNames = []string{"x-http-method-override", "x_http_method_override", "x-http-method", "X-Method-Override"}
	headerNames   = []string{"x-api-key", "x-api-key", "x-api-key", "x-api-key", "x_api_key", "x-api_key", "x.api-key", "X-Api-Key", "x-api-key ", "connection", "x-other", "x-api-keys"}
	headerPieces  = []string{"good", "good", "good", "junk", "", " ", "\t", "\xa0", "\x85", "é", ",", "\"", "\r\n ", "X-Api-Key", "close, x-api_key"}
	cookiePieces  = []string{"session", "session", "user_id", "user.id", "user", "id", "=", "=", "good", "good", "junk", ";", ";", "; ", " ", ",", "\"", "\\147", "\\", "x", "a=b", "session=good", "session=junk", "Session", "\t", "%67", "%65", "$", "{", "[", "'", "\x80", "Path", "."}
	queryPieces   = []string{"action", "action", "api_key", "api.key", "api", "key", "=", "=", "login", "login", "junk", "&", "&", ";", "%61ction", "+", "[]", "[", "]", "#", "%00", "x=1", "%6cogin", "action=login", "action=junk", "?", "%", "%zz", "%26", "%3d", "/", " ", "\t", "%20", ".", "%5B", "%2e", "\xa0", "Action"}
	bodyKinds     = []string{"json {", "json ", "x-www-form-urlencoded ", "x-www-form-urlencoded;charset=latin1 ", "multipart --b; name="}
	bodyPieces    = []string{`"model"`, `"model"`, "model", ":", ":", `"good"`, `"good"`, "good", "=", "=", "&", ",", "{", "}", "}", `"model":"good"}`, "model=good", "[]", "[", "]", " ", "\n", "%6d", "+", ";", "\u00a0", `\u006d`, `"Model"`, "1", "null"}
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
		if r.IntN(2) == 0 {
			return request.And(some(hostNames, 1), some(hostPieces, 4))
		}
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
	case "body":
		return placed("body", some(bodyKinds, 1)+some(bodyPieces, 9))
	default: // a key, as a line or an array of RESP
		return wire.Request{}.And(some([]string{"line", "array"}, 1), some(keyPieces, 3), "length", some(lengths, 1))
	}
	return request
}
