package rls

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/stint-dev/stint/policy"
)

// A descriptor is one descriptor of a request as attributes. The domain is "domain", and each entry
// has its key as name; the second entry with a key is KEY.2, and so on. entry.KEY is the entry too,
// for keys that rules read as another kind of attribute, such as path. "descriptor.N" is the Nth
// entry, from 1, whatever its key. "descriptor.keys" is the keys of all entries, in order,
// separated by commas, with a backslash before a comma or backslash in a key. If there is no "ip",
// it is "remote_address", Envoy's name for the client's address.
type descriptor struct {
	domain  string
	entries []*ratelimit.RateLimitDescriptor_Entry
	faults  []*policy.RequestError // in values that rules have asked for
	own     *policy.RequestError   // in a value that the request's own limit counts by; nil for none
}

// Attribute implements policy.Attributes.
func (d *descriptor) Attribute(name string) (string, bool) {
	v, ok := d.find(name)
	if name != "descriptor.keys" { // clients do not choose descriptor.keys
		if fault := faultOf(name, v); fault != nil {
			d.faults = append(d.faults, fault)
		}
	}
	return v, ok
}

// Fault returns why the rules cannot count by the values that they have asked for. Rules in shadow
// do not matter.
func (d *descriptor) Fault(rules *policy.Rules) error {
	if d.own != nil {
		return d.own
	}
	for _, fault := range d.faults {
		if rules.Enforces(fault.Attribute) {
			return fault
		}
	}
	return nil
}

// faultOf returns why no limit can count by a value; nil if one can.
func faultOf(name, value string) *policy.RequestError {
	reason := ""
	switch {
	case len(value) > MaxValue:
		reason = fmt.Sprintf("longer than %d bytes", MaxValue)
	case !utf8.ValidString(value):
		reason = "not UTF-8"
	case value != strings.Trim(value, " \t"): // the value of a header; servers behind Envoy get it trimmed
		reason = "blanks around it"
	default:
		return nil
	}
	return &policy.RequestError{Attribute: name, Reason: reason}
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

// inList escapes a key for descriptor.keys.
var inList = strings.NewReplacer(`\`, `\\`, `,`, `\,`)

// keys returns the value of descriptor.keys.
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

// again returns the value of KEY.N: that of the Nth entry with the key.
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

// key returns a text that is the same only for equal descriptors: the domain, and the key and value
// of each entry, with their lengths.
func (d *descriptor) key() string {
	var b []byte
	add := func(s string) {
		b = strconv.AppendInt(b, int64(len(s)), 10)
		b = append(b, ':')
		b = append(b, s...)
	}
	add(d.domain)
	for _, e := range d.entries {
		d.own = cmp.Or(d.own, faultOf(e.GetKey(), e.GetValue()))
		add(e.GetKey())
		add(e.GetValue())
	}
	return string(b)
}
