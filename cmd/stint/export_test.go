package main

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/stint-dev/stint/service/proxy"
)

// For the tests, which are outside of the package.
var (
	Run       = run
	Arguments = arguments
	Describe  = describe
)

// Parse reads a command line, and runs nothing.
func Parse(args []string) error {
	_, err := (&env{out: io.Discard, err: io.Discard}).read(args)
	return err
}

// CopyFile returns where a node keeps the copy of its rules.
func CopyFile(rules, flag string, logger *slog.Logger) string {
	return (&databaseFlags{Rules: rules, RulesCopy: flag}).copyFile(logger)
}

// SetAskWithin sets how long one of several servers may take, and returns what puts it back.
func SetAskWithin(d time.Duration) (restore func()) {
	before := askWithin
	askWithin = d
	return func() { askWithin = before }
}

// KeptForOperators reports whether a server with this --admin keeps the keys that
// are denied most, and the last requests.
func KeptForOperators(admin string) (keys, requests bool, err error) {
	f, err := proxy.OneRule("site", "ip", []string{"10/s"})
	if err != nil {
		return false, false, err
	}
	c := sourceFlags{MaxKeys: demoKeys, operators: admin, warnFlags: warnFlags{WarnAt: 80}, storeFlags: storeFlags{StoreTimeout: mostTimeout}}
	s, err := c.openRules(context.Background(), f, slog.New(slog.DiscardHandler))
	if err != nil {
		return false, false, err
	}
	defer s.close()
	return s.topKeys != nil, s.recorder != nil, nil
}

// For the tests, which are outside of the package.
var ProgressLine = progressLine
