package main

import (
	"context"
	"runtime"
)

// These are for the tests.
var (
	LicenceOf = licenceOf
	Published = published
	Tag       = tag
)

// Targets returns the systems that a release is for.
func Targets() (all []string) {
	for _, t := range targets {
		all = append(all, t.String())
	}
	return all
}

// Release builds everything for this machine's system, as the tests' own tools
// do: with C where they use it, which spares compiling all of it again.
func Release(ctx context.Context, out string) error {
	r, err := open(ctx, out, "v1.2.3")
	if err != nil {
		return err
	}
	r.env = nil
	if err := r.target(ctx, target{"linux", runtime.GOARCH}); err != nil {
		return err
	}
	if err := r.provenance(ctx, []string{"linux_" + runtime.GOARCH}); err != nil {
		return err
	}
	return r.sums()
}
