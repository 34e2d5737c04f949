package main

import (
	"fmt"
	"io"
)

// For the tests, which are outside of the package.
var (
	Run      = run
	Describe = describe
)

// Parse reads a command line, and runs nothing.
func Parse(args []string) (err error) {
	defer func() {
		if e := recover(); e != nil {
			if _, ok := e.(exited); !ok {
				err = fmt.Errorf("%v", e)
			}
		}
	}()
	var c cli
	parser, err := newParser(&c, io.Discard, io.Discard)
	if err == nil {
		_, err = parser.Parse(args)
	}
	return err
}
