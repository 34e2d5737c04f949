package rulescopy_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules/rulescopy"
)

var frames = []*rulescopy.Frame{
	{Begin: &rulesource.Snapshot{Version: rulesource.Version{Identity: "x", Revision: 1}, Name: "stint.yaml", Document: []byte("rules\x00\xff")}, Whole: true},
	{Override: &rulesource.Override{Rule: "api", Key: "a\x00\xff\n", Limits: []string{"5/m", "9/h"}, Reason: "r", Author: "ö", Change: 1 << 60,
		Expires: time.UnixMicro(1).UTC(), Created: time.UnixMicro(-5).UTC()}},
	{Override: &rulesource.Override{Rule: "api", Unlimited: true}},
	{Override: &rulesource.Override{Rule: "api", Block: true}},
	{Override: &rulesource.Override{Removed: true, Limits: []string{""}}},
	{Plan: &rulesource.Plan{Attribute: "jwt.org", Value: "\xff", Plan: "pro", Author: "anna", Created: time.UnixMicro(7).UTC(), Change: 3}},
	{End: true},
}

// text is all of a frame.
func text(f *rulescopy.Frame) string {
	all := fmt.Sprint(f.Begin != nil, f.Override != nil, f.Plan != nil, f.Whole, f.End)
	if f.Begin != nil {
		all += fmt.Sprintf("%#v", *f.Begin)
	}
	if f.Override != nil {
		all += fmt.Sprintf("%#v", *f.Override)
	}
	if f.Plan != nil {
		all += fmt.Sprintf("%#v", *f.Plan)
	}
	return all
}

// TestFrames reads what was written.
func TestFrames(t *testing.T) {
	var data []byte
	for _, f := range frames {
		var err error
		if data, err = f.Append(data); err != nil {
			t.Fatal(err)
		}
	}
	r := rulescopy.NewReader(bytes.NewReader(data))
	for i, want := range frames {
		got, err := r.Next()
		if err != nil || text(got) != text(want) {
			t.Errorf("frame %d: %+v, %v; want %+v", i, got, err, want)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("behind the last: %v", err)
	}
}

// FuzzReader reads anything: no panic, and no end that is not reached.
func FuzzReader(f *testing.F) {
	for _, one := range frames {
		data, err := one.Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := rulescopy.NewReader(bytes.NewReader(data))
		for {
			one, err := r.Next()
			if err != nil {
				return
			}
			again, err := one.Append(nil)
			if err != nil {
				t.Fatal(err)
			}
			if next, err := rulescopy.NewReader(bytes.NewReader(again)).Next(); err != nil || text(next) != text(one) {
				t.Fatalf("%+v, written and read: %+v, %v", one, next, err)
			}
		}
	})
}
