package httplimit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/internal/usage"
	"github.com/stint-dev/stint/policy"
)

// mostBody is how many bytes of a request's body rules look into.
const mostBody = 1 << 20

// mostShadow is the same for a body that only rules in shadow look into: it is small, so that
// it takes little memory and no client waits for the rules to read it.
const mostShadow = 64 << 10

// A requestBody is the body of a request that rules have looked into, in memory.
type requestBody struct {
	data   []byte
	form   bool                 // Content-Type says that it is a form
	parts  bool                 // Content-Type says that it is a multipart form
	plain  bool                 // it begins with its boundary, so that no server takes it for a urlencoded form
	values map[string]bodyValue // by pointer
	fault  error
	denies error // the first fault in what rules that are not in shadow look at
}

type bodyValue struct {
	text  string
	ok    bool
	fault error
}

// bodyAttribute returns the value that a JSON pointer leads to in the body. It reads the body
// at the first call; the handler still gets all of it.
func (c *call) bodyAttribute(pointer string) (string, bool) {
	enforced := slices.Contains(c.looked.bodies, pointer)
	if c.read == nil {
		if r := c.request; !enforced && (r.ContentLength < 0 || r.ContentLength > mostShadow || r.Header["Expect"] != nil) {
			return "", false
		}
		c.read = &requestBody{values: make(map[string]bodyValue)}
		kind := strings.ToLower(c.request.Header.Get("Content-Type"))
		c.read.form, c.read.parts = strings.Contains(kind, "urlencoded"), strings.Contains(kind, "multipart")
		c.request, c.read.data, c.read.fault = readBody(c.request)
		boundary := plainParts.FindStringSubmatch(c.request.Header.Get("Content-Type"))
		c.read.plain = boundary != nil && bytes.HasPrefix(c.read.data, []byte("--"+boundary[1]))
	}
	v, known := c.read.values[pointer]
	if !known && c.read.fault == nil {
		v.text, v.ok, v.fault = c.read.find(pointer)
		c.read.values[pointer] = v
	}
	if enforced {
		c.read.denies = cmp.Or(c.read.denies, c.read.fault, v.fault)
	}
	return v.text, v.ok
}

// plainParts matches a Content-Type in which all servers find the same boundary. Where Rack
// finds none, it reads the body as a urlencoded form.
var plainParts = regexp.MustCompile(`^(?i:multipart/form-data; ?boundary=)"?([0-9A-Za-z_'+.-]{1,70})"?$`)

// Fault returns what is wrong with the body, if rules that are not in shadow have looked into
// it: servers read it in different ways, or it is too long.
func (c *call) Fault(*policy.Rules) error {
	if c.read == nil {
		return nil
	}
	return c.read.denies
}

func bodyFault(reason string) error {
	return &policy.RequestError{Attribute: "body", Reason: reason}
}

// An unreadBody is the error for a body that did not arrive whole.
type unreadBody struct{ cause error }

// Error implements error.
func (u *unreadBody) Error() string { return "policy: body of the request: it did not come" }

// Is makes the error a fault of the request.
func (u *unreadBody) Is(target error) bool { return target == policy.ErrRequest }

// Unwrap returns the cause.
func (u *unreadBody) Unwrap() error { return u.cause }

// refusal returns the answer, with the status of the cause if that has one.
func (u *unreadBody) refusal() refusal {
	f := refuseRequest
	f.detail = "body: it did not come"
	var with interface {
		error
		HTTPStatus() int
	}
	if errors.As(u.cause, &with) {
		f.status, f.title, f.detail = with.HTTPStatus(), http.StatusText(with.HTTPStatus()), with.Error()
	}
	if f.status == http.StatusServiceUnavailable {
		f.grpc, f.retry, f.wait = grpcUnavailable, 1, stint.Wait(time.Second)
	}
	return f
}

// readBody returns the body of a request, and a request whose handler can read it again.
func readBody(r *http.Request) (*http.Request, []byte, error) {
	kind := r.Header["Content-Type"]
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return r, nil, nil
	case len(r.Header["Content-Encoding"]) > 0:
		return r, nil, bodyFault("it is encoded, so that rules cannot read it")
	case len(kind) > 1:
		return r, nil, bodyFault("Content-Type comes more than once")
	case r.ContentLength > mostBody:
		return r, nil, bodyFault("longer than " + strconv.Itoa(mostBody) + " bytes, which rules cannot read")
	}
	body, err := request.Hold(r.Body, mostBody)
	data := body.Data
	out := r.WithContext(r.Context()) // a copy: r must stay as it is
	out.Body = body
	switch {
	case err != nil:
		return out, nil, &unreadBody{err}
	case !body.Whole:
		return out, nil, bodyFault("longer than " + strconv.Itoa(mostBody) + " bytes, which rules cannot read")
	case len(kind) == 1 && otherCharset(kind[0], beginsAsJSON(data)):
		return out, nil, bodyFault("it is said to be in another charset than UTF-8, so that rules cannot read it")
	case busted(data):
		return out, nil, bodyFault("it begins as JSON and is none, or is written in another way than UTF-8")
	case len(kind) == 1 && beginsAsJSON(data) && strings.Contains(strings.ToLower(kind[0]), "multipart"):
		return out, nil, bodyFault("it begins as JSON and is said to have parts, which servers find behind it")
	}
	return out, data, nil
}

// busted reports whether a body begins as JSON but is none. Some servers still read it, and
// find in it what rules do not: they accept NaN, a comma too many, any depth, comments, other
// blanks, a byte order mark, or bytes that are not UTF-8.
func busted(data []byte) bool {
	var first json.RawMessage // bytes after the first value do not matter
	return beginsAsJSON(data) && (!utf8.Valid(data) || json.NewDecoder(bytes.NewReader(data)).Decode(&first) != nil)
}

func beginsAsJSON(data []byte) bool {
	begin := bytes.TrimLeft(data, "\x00 \t\r\n\v\f\u0085\u00a0\u2028\u2029\ufeff\xfe\xff")
	return slices.ContainsFunc([]string{"{", "[", "//", "/*"}, func(with string) bool { return bytes.HasPrefix(begin, []byte(with)) })
}

// otherCharset reports whether some server may take the charset of a Content-Type for another
// than UTF-8, such as UTF-7, in which Express finds other fields. The charsets of old
// clients' forms, in which ASCII is as in UTF-8, count as others only if exact.
func otherCharset(kind string, exact bool) bool {
	_, charset, said := strings.Cut(strings.ToLower(kind), "charset")
	charset, rest, _ := strings.Cut(charset, ";")
	switch strings.Trim(charset, " \t=\"") {
	case "iso-8859-1", "windows-1252":
		return exact || strings.Contains(rest, "charset")
	case "utf-8", "utf8", "us-ascii":
		return strings.Contains(rest, "charset")
	}
	return said
}

// otherwise returns an error if some server may find the field in a form, where rules find it
// in JSON or not at all. Most servers know a form by its Content-Type, some by its text.
func (b *requestBody) otherwise(n *pairName) error {
	json := beginsAsJSON(b.data)
	switch {
	case json && b.form && n.inForm(string(b.data)):
		return bodyFault("the field " + strconv.Quote(n.name) + " is in it as JSON and as a form has it, and Content-Type says that it is a form")
	case !json && (b.form || !b.plain) && n.inForm(string(b.data)), !json && b.parts && n.inParts(b.data):
		return bodyFault("it is a form with the field " + strconv.Quote(n.name) + ", which rules read in JSON: send JSON")
	}
	return nil
}

// find returns the text, number or boolean that a pointer leads to. The error is for a name
// on the way that comes twice, is spelled otherwise, or also stands in a form.
func (b *requestBody) find(pointer string) (text string, ok bool, err error) {
	path, err := usage.ParsePointer(pointer)
	if err != nil {
		return "", false, nil //nolint:nilerr // the pointers of rules do parse
	}
	if n := newPairName(path[0]); b.data != nil {
		if err := b.otherwise(&n); err != nil {
			return "", false, err
		}
	}
	rest := json.RawMessage(b.data)
	for _, name := range path {
		if rest, err = field(rest, name); rest == nil {
			return "", false, err
		}
	}
	if rest[0] == '{' || rest[0] == '[' {
		return "", false, bodyFault("the field " + strconv.Quote(path[len(path)-1]) + " is a list or an object, of which some servers make a text: send the value alone")
	}
	var value any
	decode := json.NewDecoder(bytes.NewReader(rest))
	decode.UseNumber()
	if decode.Decode(&value) != nil {
		return "", false, nil
	}
	switch value := value.(type) {
	case string:
		if strings.IndexByte(value, 0) >= 0 {
			return "", false, bodyFault("a text with a NUL, where some servers end it")
		}
		return value, true, nil
	case json.Number:
		text, ok := usage.PlainNumber(value.String())
		if !ok {
			return "", false, bodyFault("a number beyond 2^53, which servers round in different ways: send it as a text")
		}
		return text, true, nil
	case bool:
		return strconv.FormatBool(value), true, nil
	}
	return "", false, nil
}

// field returns the field of an object or the element of a list, nil if there is none. The
// error is for a field that comes twice, of which servers take the first or the last, or in
// another spelling, which servers in Go and .NET accept. It scans the bytes itself, because a
// decoder would make a value of each element.
func field(of json.RawMessage, name string) (found json.RawMessage, err error) {
	of = skipBlank(of)
	if len(of) == 0 || of[0] != '{' && of[0] != '[' {
		return nil, nil
	}
	object, index := of[0] == '{', -1
	if i, err := strconv.Atoi(name); err == nil && strconv.Itoa(i) == name {
		index = i
	}
	of = skipBlank(of[1:])
	for i := 0; len(of) > 0 && of[0] != '}' && of[0] != ']'; i++ {
		same, otherwise := i == index, false
		if object {
			n := valueLen(of)
			same, otherwise = isNamed(of[:n], name)
			of = skipBlank(of[n:])
			of = skipBlank(of[min(1, len(of)):]) // behind the colon
		}
		n := valueLen(of)
		switch {
		case same && found != nil:
			return nil, bodyFault("the field " + strconv.Quote(name) + " comes twice")
		case otherwise:
			return nil, bodyFault("the field " + strconv.Quote(name) + " is spelled otherwise, which some servers take for it")
		case same:
			found = of[:n:n]
		}
		if of = skipBlank(of[n:]); len(of) > 0 && of[0] == ',' {
			of = skipBlank(of[1:])
		}
	}
	return found, nil
}

func skipBlank(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }

// isNamed reports whether a quoted text is the name, or the name in another case.
func isNamed(quoted []byte, name string) (same, otherwise bool) {
	text := bytes.Trim(quoted, `"`)
	if bytes.IndexByte(text, '\\') >= 0 {
		var plain string
		_ = json.Unmarshal(quoted, &plain) // busted has found the JSON to be good
		text = []byte(plain)
	}
	same = string(text) == name
	return same, !same && strings.EqualFold(string(text), name)
}

// valueLen returns the length, at least 1, of the JSON value that b begins with.
func valueLen(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		default:
			if depth == 0 { // a number or a word
				if n := bytes.IndexAny(b[i:], ",]} \t\r\n"); n > 0 {
					return i + n
				}
				return len(b)
			}
			continue
		}
		if depth == 0 {
			return min(i+1, len(b))
		}
	}
	return len(b)
}
