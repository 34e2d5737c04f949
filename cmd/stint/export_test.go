package main

import "github.com/stint-dev/stint/cmd/internal/commandline"

// For the tests, which are outside of the package.
var (
	Run      = run
	Describe = describe
)

// Parse reads a command line, and runs nothing.
func Parse(args []string) error {
	_, _, err := commandline.New("stint", "", &cli{}).Read(args)
	return err
}
