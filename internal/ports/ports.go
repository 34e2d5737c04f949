// Package ports refuses ports that no address can have, before something listens or
// connects.
package ports

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
)

// Check refuses the port of a URL unless it is from 1 to 65535, or left out.
func Check(u *url.URL) error { return check(u.Port()) }

// CheckAddress is [Check] for host:port.
func CheckAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil //nolint:nilerr // without a port, none is wrong
	}
	return check(port)
}

func check(port string) error {
	if n, err := strconv.ParseUint(port, 10, 16); port == "" || err == nil && n > 0 {
		return nil
	}
	return fmt.Errorf("port %.20s: a port is a number from 1 to 65535", port)
}
