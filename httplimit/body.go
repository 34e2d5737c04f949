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

// mostBody bounds the body of a request that rules look into, in bytes.
const mostBody = 1 << 20

// mostShadow bounds the body of a request that only rules in shadow look into: no room is
// kept for it, and no client waits for the answer to a long one.
const mostShadow = 64 << 10

// A requestBody is the body of a request that rules have looked into, in memory.
type requestBody struct {
	data   []byte
	form   bool                 // it is said to be a form
	parts  bool                 // it is said to be a form of several parts
	plain  bool                 // so that nobody takes it for a form of one
	values map[string]bodyValue // by pointer
	fault  error
	denies error // a fault in what rules look at that are not in shadow
}

// A bodyValue is what a pointer leads to.
type bodyValue struct {
	text  string
	ok    bool
	fault error
}

// bodyAttribute returns what a JSON pointer leads to in the body, which is read for it:
// the handler gets it as it came.
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

// plainParts matches a type from which all servers take the same boundary. Rack reads a form
// of one part where it finds none.
var plainParts = regexp.MustCompile(`^(?i:multipart/form-data; ?boundary=)"?([0-9A-Za-z_'+.-]{1,70})"?$`)

// Fault returns what is wrong with the body, if rules have looked into it that are not in
// shadow: servers read it in different ways, or there is too much of it.
func (c *call) Fault(*policy.Rules) error {
	if c.read == nil {
		return nil
	}
	return c.read.denies
}

func bodyFault(reason string) error {
	return &policy.RequestError{Attribute: "body", Reason: reason}
}

// An unreadBody is a body that did not come.
type unreadBody struct{ cause error }

// Error implements error.
func (u *unreadBody) Error() string { return "policy: body of the request: it did not come" }

// Is makes it a fault of the request.
func (u *unreadBody) Is(target error) bool { return target == policy.ErrRequest }

// Unwrap is for [errors.As].
func (u *unreadBody) Unwrap() error { return u.cause }

// refusal returns the answer, with the status that the cause has.
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

// readBody returns the body of a request, and the request with it.
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
	out := r.WithContext(r.Context()) // a copy: the request stays as it is
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

// busted reports whether a body that begins as JSON does not go on so. Some servers read it
// still, and find there what rules do not: they take NaN, a comma too many, any depth, a
// comment, other blanks, a mark of the byte order, or bytes that are not UTF-8.
func busted(data []byte) bool {
	var first json.RawMessage // what follows it is another
	return beginsAsJSON(data) && (!utf8.Valid(data) || json.NewDecoder(bytes.NewReader(data)).Decode(&first) != nil)
}

func beginsAsJSON(data []byte) bool {
	begin := bytes.TrimLeft(data, "\x00 \t\r\n\v\f\u0085\u00a0\u2028\u2029\ufeff\xfe\xff")
	return slices.ContainsFunc([]string{"{", "[", "//", "/*"}, func(with string) bool { return bytes.HasPrefix(begin, []byte(with)) })
}

// otherCharset reports whether a Content-Type may be read as one of another charset than
// UTF-8, such as UTF-7, in which Express finds other fields. The charsets of old clients'
// forms, in which ASCII is as in UTF-8 and JSON begins so, are others only if exact.
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

// otherwise returns why some servers read a field outside of JSON: many take a form for the
// same. A form is known by its type to most, and by its text to some.
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

// find returns what a pointer leads to: a text, a number, true or false. The error is for
// a name that comes twice on the way, is spelled otherwise, or stands in a form.
func (b *requestBody) find(pointer string) (text string, ok bool, err error) {
	path, err := usage.ParsePointer(pointer)
	if err != nil {
		return "", false, nil //nolint:nilerr // no rule has one that is none
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

// field returns the field of an object or the element of a list, nil if there is none.
// What is no JSON has none. The error is for a field that comes twice: servers take the
// first or the last. So it is for another spelling, which servers in Go and .NET take, too.
// The bytes are looked through as they are: a decoder makes a value of each element.
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

// isNamed reports whether a text in quotes is a name, or is it in another spelling.
func isNamed(quoted []byte, name string) (same, otherwise bool) {
	text := bytes.Trim(quoted, `"`)
	if bytes.IndexByte(text, '\\') >= 0 {
		var plain string
		_ = json.Unmarshal(quoted, &plain) // of JSON that has been read
		text = []byte(plain)
	}
	same = string(text) == name
	return same, !same && strings.EqualFold(string(text), name)
}

// valueLen returns how long the value is that JSON begins with, at least 1.
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
