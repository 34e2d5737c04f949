package rulescopy

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/stint-dev/stint/rulesource"
)

// Most of a copy is overrides and plans. To save space they are written as a letter and their
// fields, each text with its length, instead of JSON.
const (
	overrideLetter = 'o'
	planLetter     = 'p'
)

// Flags of an override.
const (
	flagUnlimited = 1 << iota
	flagBlock
	flagRemoved
	flagLimits
)

func appendOverride(to []byte, o *rulesource.Override) []byte {
	flags := byte(0)
	for i, set := range [...]bool{o.Unlimited, o.Block, o.Removed, len(o.Limits) > 0} { // in the order of the flags
		if set {
			flags |= 1 << i
		}
	}
	to = append(to, overrideLetter, flags)
	for _, text := range [...]string{o.Rule, o.Key, strings.Join(o.Limits, "\n"), o.Reason, o.Author} {
		to = appendText(to, text)
	}
	for _, n := range [...]int64{micros(o.Expires), micros(o.Created), o.Change} {
		to = binary.AppendVarint(to, n)
	}
	return to
}

func appendPlan(to []byte, p *rulesource.Plan) []byte {
	to = append(to, planLetter)
	for _, text := range [...]string{p.Attribute, p.Value, p.Plan, p.Author} {
		to = appendText(to, text)
	}
	return binary.AppendVarint(binary.AppendVarint(to, micros(p.Created)), p.Change)
}

func appendText(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

// fields reads fields that were appended. It sets bad once a field is missing.
type fields struct {
	data []byte
	bad  bool
}

func (f *fields) text() string {
	n, size := binary.Uvarint(f.data)
	if size <= 0 || n > uint64(len(f.data)-size) {
		f.bad = true
		return ""
	}
	text := string(f.data[size : size+int(n)])
	f.data = f.data[size+int(n):]
	return text
}

func (f *fields) number() int64 {
	n, size := binary.Varint(f.data)
	if size <= 0 {
		f.bad = true
		return 0
	}
	f.data = f.data[size:]
	return n
}

func (f *fields) moment() time.Time {
	us := f.number()
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// readOverride reads the fields after the letter.
func readOverride(data []byte) (*rulesource.Override, bool) {
	if len(data) == 0 {
		return nil, false
	}
	flags, f := data[0], &fields{data: data[1:]}
	o := &rulesource.Override{Unlimited: flags&flagUnlimited != 0, Block: flags&flagBlock != 0, Removed: flags&flagRemoved != 0}
	o.Rule, o.Key = f.text(), f.text()
	if limits := f.text(); flags&flagLimits != 0 {
		o.Limits = strings.Split(limits, "\n")
	}
	o.Reason, o.Author = f.text(), f.text()
	o.Expires, o.Created, o.Change = f.moment(), f.moment(), f.number()
	return o, !f.bad && len(f.data) == 0
}

// readPlan reads the fields after the letter.
func readPlan(data []byte) (*rulesource.Plan, bool) {
	f := &fields{data: data}
	p := &rulesource.Plan{Attribute: f.text(), Value: f.text(), Plan: f.text(), Author: f.text()}
	p.Created, p.Change = f.moment(), f.number()
	return p, !f.bad && len(f.data) == 0
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}
