package rls

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/stint-dev/stint/policy"
)

// A descriptor is one descriptor of a request as attributes: the domain under
// "domain", and each entry under its key. Of entries with the same key the
// second is KEY.2, and so on. entry.KEY is the entry too, for keys that rules
// take for something else, such as path. "descriptor.N" is the Nth entry, from 1, whatever
// its key. "descriptor.keys" is the keys of all entries, in order, with commas between; a
// comma or backslash in a key has a backslash before it. Where there is no "ip", it is
// "remote_address", as Envoy calls the client's.
type descriptor struct {
	domain  string
	entries []*ratelimit.RateLimitDescriptor_Entry
	fault   *policy.RequestError // in a value that rules have asked for; nil for none
}

// Attribute implements policy.Attributes.
func (d *descriptor) Attribute(name string) (string, bool) {
	v, ok := d.find(name)
	if name != "descriptor.keys" { // which no client chooses
		d.look(name, v)
	}
	return v, ok
}

// Fault returns why the rules cannot count by what they have asked for.
func (d *descriptor) Fault() error {
	if d.fault == nil {
		return nil
	}
	return d.fault
}

// look notes a value that nothing can count by.
func (d *descriptor) look(name, value string) {
	reason := ""
	switch {
	case len(value) > MaxValue:
		reason = fmt.Sprintf("longer than %d bytes", MaxValue)
	case !utf8.ValidString(value):
		reason = "not UTF-8"
	case value != strings.Trim(value, " \t"): // of a header, which the server behind gets without
		reason = "blanks around it"
	default:
		return
	}
	d.fault = &policy.RequestError{Attribute: name, Reason: reason}
}

func (d *descriptor) find(name string) (string, bool) {
	switch name {
	case "domain":
		return d.domain, true
	case "descriptor.keys":
		return d.keys(), true
	}
	if number, ok := strings.CutPrefix(name, "descriptor."); ok {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil || n == 0 || n > uint64(len(d.entries)) {
			return "", false
		}
		return d.entries[n-1].GetValue(), true
	}
	raw, ok := strings.CutPrefix(name, "entry.")
	if !ok {
		raw = name
	}
	for _, e := range d.entries {
		if e.GetKey() == raw {
			return e.GetValue(), true
		}
	}
	if name == "ip" {
		return d.find("remote_address")
	}
	return d.again(raw)
}

// inList writes a key as descriptor.keys has it.
var inList = strings.NewReplacer(`\`, `\\`, `,`, `\,`)

// keys returns the keys in order.
func (d *descriptor) keys() string {
	if len(d.entries) == 1 {
		return inList.Replace(d.entries[0].GetKey())
	}
	keys := make([]string, len(d.entries))
	for i, e := range d.entries {
		keys[i] = inList.Replace(e.GetKey())
	}
	return strings.Join(keys, ",")
}

// again returns the value of KEY.N: the Nth entry of that key.
func (d *descriptor) again(name string) (string, bool) {
	at := strings.LastIndexByte(name, '.')
	if at < 1 {
		return "", false
	}
	key := name[:at]
	n, err := strconv.ParseUint(name[at+1:], 10, 16)
	if err != nil || n < 2 || name[at+1] == '0' {
		return "", false
	}
	for _, e := range d.entries {
		if e.GetKey() != key {
			continue
		}
		if n--; n == 0 {
			return e.GetValue(), true
		}
	}
	return "", false
}

// key returns a text that two descriptors share only if they are equal: the
// domain, and the key and value of each entry, with their lengths.
func (d *descriptor) key() string {
	var b []byte
	add := func(s string) {
		b = strconv.AppendInt(b, int64(len(s)), 10)
		b = append(b, ':')
		b = append(b, s...)
	}
	add(d.domain)
	for _, e := range d.entries {
		d.look(e.GetKey(), e.GetValue())
		add(e.GetKey())
		add(e.GetValue())
	}
	return string(b)
}
