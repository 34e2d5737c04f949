package proxy

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/stint-dev/stint/internal/request"
)

// In OpenAI's protocol, a stream says what it has cost if the request asks for usage, in a chunk
// of its own. If a rule charges that cost, the proxy asks, and takes the chunk out of the answer,
// since the client has not asked for it.

// mostAsked bounds the bodies that the proxy changes to ask, in bytes. A larger body, or one that
// servers may read in several ways, stays unchanged, and costs the estimate.
const mostAsked = 1 << 20

// askUsage returns the request with a body that asks for usage, and notes that the chunk is to be
// hidden. A body that does not ask for a stream stays unchanged.
func (v *visit) askUsage(r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength > mostAsked || len(r.Header["Content-Encoding"]) > 0 {
		return r
	}
	held, _ := request.Hold(r.Body, mostAsked) // its reader gets the error
	asked, ok := withUsage(held.Data)
	if ok = ok && held.Whole; ok {
		held.Data = asked
	}
	size := len(held.Data)
	v.h.bodies.Add(v.from, size)
	held.Freed = sync.OnceFunc(func() { v.h.bodies.Add(v.from, -size) })
	out := r.WithContext(r.Context()) // a copy: a handler must not change its request
	if out.Body = held; ok {
		v.hides.on = true
		out.ContentLength, out.TransferEncoding = int64(size), nil
	}
	return out
}

// withUsage returns the body, changed so that it asks for usage. ok is false for a body that does
// not ask for a stream of text, asks for usage already, or may be read in several ways.
func withUsage(body []byte) (asked []byte, ok bool) {
	all, ok := fieldsOf(body)
	if !ok || string(all.value("stream")) != "true" || all.value("messages") == nil && all.value("prompt") == nil {
		return nil, false
	}
	options, isObject := fieldsOf(all.value("stream_options"))
	if !isObject {
		return all.set("stream_options", []byte(`{"include_usage":true}`)), true
	}
	if string(options.value("include_usage")) == "true" {
		return nil, false
	}
	return all.set("stream_options", options.set("include_usage", []byte("true"))), true
}

// An object is a JSON object, and where the values of its fields are.
type object struct {
	text   []byte
	fields []objectField
}

type objectField struct {
	name       string
	begin, end int // of its value
}

// fieldsOf parses an object. ok is false for any other text, and for an object with a field twice
// or in several spellings, since servers differ in which of them they take.
func fieldsOf(text []byte) (o object, ok bool) {
	o.text = text
	in := json.NewDecoder(bytes.NewReader(text))
	if begin, err := in.Token(); err != nil || begin != json.Delim('{') {
		return o, false
	}
	seen := make(map[string]bool)
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return o, false
		}
		var value json.RawMessage
		if in.Decode(&value) != nil {
			return o, false
		}
		end := int(in.InputOffset())
		field := objectField{name.(string), end - len(value), end}
		if low := strings.ToLower(field.name); seen[low] {
			return o, false
		} else {
			seen[low] = true
		}
		o.fields = append(o.fields, field)
	}
	if _, err := in.Token(); err != nil {
		return o, false
	}
	_, err := in.Token()
	return o, err == io.EOF
}

func (o *object) find(name string) int {
	return slices.IndexFunc(o.fields, func(f objectField) bool { return f.name == name })
}

func (o *object) value(name string) []byte {
	if i := o.find(name); i >= 0 {
		return o.text[o.fields[i].begin:o.fields[i].end]
	}
	return nil
}

// set returns the text of the object with a field set to value.
func (o *object) set(name string, value []byte) []byte {
	if i := o.find(name); i >= 0 {
		return slices.Concat(o.text[:o.fields[i].begin], value, o.text[o.fields[i].end:])
	}
	begin := bytes.IndexByte(o.text, '{') + 1
	field := slices.Concat([]byte(`"`+name+`":`), value)
	if len(o.fields) > 0 {
		field = append(field, ',')
	}
	return slices.Concat(o.text[:begin], field, o.text[begin:])
}
