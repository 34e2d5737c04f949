//go:build linux

package main

import "testing"

// TestContenders runs each with a few keys: all let a thousand an hour pass.
func TestContenders(t *testing.T) {
	for _, c := range contenders {
		r, err := measure(c.handler, 1000, 1<<30)
		if err != nil || r.Keys != 1000 {
			t.Errorf("%s: %+v, %v", c.name, r, err)
		}
	}
}
