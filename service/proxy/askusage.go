package proxy

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/stint-dev/stint/internal/request"
)

// In OpenAI's protocol, a stream says what it has cost if the request asks for usage, in a chunk
// of its own. If a rule charges that cost, the proxy asks, and takes the chunk out of the answer,
// since the client has not asked for it.

// mostAsked bounds the bodies that the proxy changes to ask, in bytes. A larger body stays unchanged, and
// costs the estimate.
const mostAsked = 1 << 20

// askUsage returns the request with a body that asks for usage, and notes that the chunk is to be
// hidden. A body that does not ask for a stream stays unchanged.
func (v *visit) askUsage(r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength > mostAsked {
		return r
	}
	held, _ := request.Hold(r.Body, mostAsked) // its reader gets the error
	asked, ok := withUsage(held.Data)
	if ok = ok && held.Whole; ok {
		held.Data = asked
	}
	size := len(held.Data)
	v.h.bodies.Add(v.from, size)
	v.freed = sync.OnceFunc(func() { v.h.bodies.Add(v.from, -size) })
	held.Freed = v.freed
	out := r.WithContext(r.Context()) // a copy: a handler must not change its request
	if out.Body = held; ok {
		v.hides.on = true
		out.ContentLength, out.TransferEncoding = int64(size), nil
	}
	return out
}

// withUsage returns the body, changed so that it asks for usage. ok is false for a body that does not
// ask for a stream of text, or asks for usage already. Of a field twice or in several spellings, servers
// take one or the other: all are changed. Like rules, it reads the first value of the body, as servers do
// that go on reading, and whatever coding the headers claim.
func withUsage(body []byte) (asked []byte, ok bool) {
	all, ok := fieldsOf(body)
	streams := func(f objectField) bool {
		value := string(all.text[f.begin:f.end])
		return f.is("stream") && value != "false" && value != "null"
	}
	text := func(f objectField) bool { return f.is("messages") || f.is("prompt") }
	if !ok || !slices.ContainsFunc(all.fields, streams) || !slices.ContainsFunc(all.fields, text) {
		return nil, false
	}
	asked = all.set("stream_options", func(value []byte) []byte {
		options, isObject := fieldsOf(value)
		if !isObject {
			return []byte(`{"include_usage":true}`)
		}
		return options.set("include_usage", func([]byte) []byte { return []byte("true") })
	})
	return asked, !bytes.Equal(asked, body)
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

// is reports whether the field has a name, as servers that ignore case read it.
func (f *objectField) is(name string) bool { return strings.EqualFold(f.name, name) }

// fieldsOf parses the object that a text begins with. ok is false for any other text.
func fieldsOf(text []byte) (o object, ok bool) {
	o.text = text
	in := json.NewDecoder(bytes.NewReader(text))
	if begin, err := in.Token(); err != nil || begin != json.Delim('{') {
		return o, false
	}
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
		o.fields = append(o.fields, objectField{name.(string), end - len(value), end})
	}
	_, err := in.Token()
	return o, err == nil
}

// set returns the text of the object with each value of a field changed by to, and with the field, made of
// nil, if it has none of exactly that name.
func (o *object) set(name string, to func(value []byte) []byte) (text []byte) {
	last := 0
	if !slices.ContainsFunc(o.fields, func(f objectField) bool { return f.name == name }) {
		last = bytes.IndexByte(o.text, '{') + 1
		text = slices.Concat(o.text[:last], []byte(`"`+name+`":`), to(nil))
		if len(o.fields) > 0 {
			text = append(text, ',')
		}
	}
	for _, f := range o.fields {
		if f.is(name) {
			text = append(append(text, o.text[last:f.begin]...), to(o.text[f.begin:f.end])...)
			last = f.end
		}
	}
	return append(text, o.text[last:]...)
}
