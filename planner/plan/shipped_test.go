package plan_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/netip"
	"regexp"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/golden"
)

// The log that is shipped is the one that is made here: small, and of no real server.
func TestShipped(t *testing.T) {
	var made bytes.Buffer
	if err := writeSample(&made, sampleOptions{}); err != nil {
		t.Fatal(err)
	}
	if *golden.Update {
		var packed bytes.Buffer
		z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := z.Write(made.Bytes()); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		disk.Write(t, shipped, packed.String())
	}
	data := disk.Read(t, shipped)
	if len(data) > 200<<10 {
		t.Errorf("%d bytes: 200 KiB at the most", len(data))
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, made.Bytes()) {
		t.Error("the shipped log is not the one that is made: go test ./planner/plan -run TestShipped -update")
	}
	document := []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24"),
		netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32"),
	}
	for _, m := range regexp.MustCompile(`(?m)^[^ \n]+`).FindAll(text, -1) {
		addr, err := netip.ParseAddr(string(m))
		if err != nil {
			continue // a line that is cut off
		}
		inside := false
		for _, net := range document {
			inside = inside || net.Contains(addr)
		}
		if !inside {
			t.Fatalf("%v is not set aside for documentation", addr)
		}
	}
}
