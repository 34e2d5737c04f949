package ports_test

import (
	"net/url"
	"testing"

	"github.com/stint-dev/stint/internal/ports"
)

func TestCheck(t *testing.T) {
	for address, good := range map[string]bool{
		"h:1": true, "h:65535": true, "h": true, "h:": true, "[::1]:80": true, "[::1]": true,
		"h:0": false, "h:65536": false, "h:99999": false, "[::1]:99999": false, "h:99999999999999999999": false,
	} {
		err := ports.Check(&url.URL{Scheme: "http", Host: address})
		if (err == nil) != good {
			t.Errorf("%s: %v", address, err)
		}
		if err := ports.CheckAddress(address); (err == nil) != good {
			t.Errorf("%s as an address: %v", address, err)
		}
	}
	if err := ports.CheckAddress("h:http"); err == nil {
		t.Error("a name is a port")
	}
}
