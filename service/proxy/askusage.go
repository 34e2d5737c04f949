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

// Servers that speak as OpenAI does say what a stream has cost if the request asks for it,
// in a chunk of its own. The proxy asks where a rule charges that, and takes the chunk out
// again: the client has not asked.

// mostAsked bounds the bodies that are asked in, in bytes. What a client puts above it, or
// writes so that servers may read it otherwise, goes as it is, and costs the estimate.
const mostAsked = 1 << 20

// askUsage returns the request with a body that asks for usage, and notes that the client has
// not. A body that says nothing of a stream stays as it is.
func (v *visit) askUsage(r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength > mostAsked || len(r.Header["Content-Encoding"]) > 0 {
		return r
	}
	held, _ := request.Hold(r.Body, mostAsked) // who reads it is told what is wrong with it
	asked, ok := withUsage(held.Data)
	if ok = ok && held.Whole; ok {
		held.Data = asked
	}
	size := len(held.Data)
	v.h.bodies.Add(v.from, size)
	held.Freed = sync.OnceFunc(func() { v.h.bodies.Add(v.from, -size) })
	out := r.WithContext(r.Context()) // a copy: a handler leaves its request as it is
	if out.Body = held; ok {
		v.hides.on = true
		out.ContentLength, out.TransferEncoding = int64(size), nil
	}
	return out
}

// withUsage returns a body that asks for usage. It is false where the body does not ask for a
// stream of text, asks already, or may be read in several ways.
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

// An object is JSON, and where its fields are.
type object struct {
	text   []byte
	fields []objectField
}

type objectField struct {
	name       string
	begin, end int // of its value
}

// fieldsOf returns an object. It is false for what is none, and where a field comes twice or in
// several spellings: servers take the one or the other.
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

// value returns the value of a field; nil if there is none.
func (o *object) value(name string) []byte {
	if i := o.find(name); i >= 0 {
		return o.text[o.fields[i].begin:o.fields[i].end]
	}
	return nil
}

// set returns the object with another value of a field.
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
