package main

import (
	"bytes"
	"io"
	"iter"
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

// pages yields what is listed, page by page: most in all, or everything if that is not
// above 0. read returns up to n behind the last one, which is the zero value at first.
func pages[T any](most int, read func(last T, n int) ([]T, error)) iter.Seq2[T, error] {
	const page = 1000
	return func(yield func(T, error) bool) {
		var last T
		for left := most; most <= 0 || left > 0; left -= page {
			n := page
			if most > 0 {
				n = min(n, left)
			}
			some, err := read(last, n)
			if err != nil {
				yield(last, err)
				return
			}
			for _, last = range some {
				if !yield(last, nil) {
					return
				}
			}
			if len(some) < n {
				return
			}
		}
	}
}

// collect returns what is yielded up to the first error.
func collect[T any](all iter.Seq2[T, error]) (list []T, err error) {
	for one, err := range all {
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}
