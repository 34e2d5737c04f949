package main

import (
	"io"
	"log/slog"
	"net"
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

// Advertised returns what a node writes of an address of --admin.
func Advertised(rules, flag, admin string, encrypted bool) (string, error) {
	addr, err := net.ResolveTCPAddr("tcp", admin)
	if err != nil {
		return "", err
	}
	c := databaseFlags{Rules: rules, Advertise: flag}
	err = c.advertise(addr, encrypted)
	return c.address, err
}

// CopyFile returns where a node keeps the copy of its rules.
func CopyFile(rules, flag string, logger *slog.Logger) string {
	return (&databaseFlags{Rules: rules, RulesCopy: flag}).copyFile(logger)
}

// NotAsked returns why a node that has written an address is not asked, by who has a
// token or none and gives --nodes-at.
func NotAsked(nodesAt, tokenFile, address string) error {
	c := serversFlags{Rules: "sqlite:", TokenFile: tokenFile, NodesAt: []string{nodesAt}}
	if err := c.check(); err != nil {
		return err
	}
	_, err := c.of(address)
	return err
}

// SetAskWithin sets how long one of several nodes may take, and returns what puts it back.
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
	s, err := c.openRules(f, slog.New(slog.DiscardHandler))
	if err != nil {
		return false, false, err
	}
	defer s.close()
	return s.topKeys != nil, s.recorder != nil, nil
}
