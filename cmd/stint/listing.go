package main

import (
	"bytes"
	"io"
)

// A listing writes things one by one, as lines for people or as one JSON array:
// there may be millions, so none is kept.
type listing struct {
	w    io.Writer
	json bool
	some bool // something was written
}

// one writes a thing: as JSON, or its text.
func (l *listing) one(v any, text string) error {
	if !l.json {
		return wrap(l.w, text, "    ")
	}
	var b bytes.Buffer
	before := "[\n"
	if l.some {
		before = ",\n"
	}
	l.some = true
	b.WriteString(before)
	if err := printJSON(&b, v); err != nil {
		return err
	}
	_, err := l.w.Write(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	return err
}

// end ends the array.
func (l *listing) end() error {
	if !l.json {
		return nil
	}
	text := "\n]\n"
	if !l.some {
		text = "[]\n"
	}
	_, err := io.WriteString(l.w, text)
	return err
}

// pageOf returns how many to ask for next: a page, or what is left of most; 0 is
// no bound.
func pageOf(most, left int) int {
	const page = 1000
	if most > 0 {
		return min(page, left)
	}
	return page
}
