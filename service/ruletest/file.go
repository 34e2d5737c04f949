package ruletest

import (
	_ "embed" // the schema
	"time"

	"github.com/stint-dev/stint/service/rules"
)

// Schema is the JSON schema of test files, for editors.
//
//go:embed schema.json
var Schema string

// A File is a test file that has been read and found good, with its rules.
type File struct {
	Name  string
	Rules *rules.File
	Tests []Test
}

// A Test is requests in the order of their times, on an empty store.
type Test struct {
	Name     string
	Line     int
	Start    time.Time // what 0s is
	Requests []Request
}

// A Request is one request, or several alike.
type Request struct {
	Line, Column int
	At           time.Duration // since the start of the test
	Times        int64
	Every        time.Duration // between one and the next
	Lasts        time.Duration // until each ends
	Response     *Response     // nil if none is told
	Attributes   map[string]string
	Cost         int64
	Sent         int64       // bytes of its body
	Expect       Expectation // nil: nothing
	fault        error       // why HTTP refuses it
}

// A Response is the answer that requests get which pass.
type Response struct {
	Status  int
	Headers map[string][]string
	Body    string
}

// Attribute implements [policy.Attributes].
func (r *Request) Attribute(name string) (string, bool) {
	v, ok := r.Attributes[name]
	return v, ok
}

// BodyLength returns how many bytes are sent, for costs that say so.
func (r *Request) BodyLength() int64 { return r.Sent }

// An Expectation is what fields of the answer must be, as it writes them. What is not in it
// may be anything.
type Expectation map[string]string
