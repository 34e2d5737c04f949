package main_test

import (
	"net"
	"syscall"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/need"
)

// TestStopWhileStarting ends servers that wait for their first rules, of sources that take a
// connection and say nothing: a stop waits for none of them, and is no failure.
func TestStopWhileStarting(t *testing.T) {
	need.Time(t)
	proxy := []string{"--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1"}
	for _, test := range []struct {
		command, scheme, path string
		more                  []string
	}{
		{"serve", "xds", "", nil}, {"serve", "http", "/stint.yaml", nil}, {"serve", "redis", "", nil}, {"serve", "postgres", "/stint", nil}, {"proxy", "xds", "", proxy},
	} {
		t.Run(test.command+" "+test.scheme, func(t *testing.T) {
			t.Parallel() // it waits
			silent, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer silent.Close()
			asked := make(chan net.Conn, 100)
			go func() {
				for conn, err := silent.Accept(); err == nil; conn, err = silent.Accept() {
					asked <- conn
				}
			}()
			p := launch(t, test.command, append([]string{test.command, "--rules", test.scheme + "://" + silent.Addr().String() + test.path, "--rules-copy", "none"}, test.more...)...)
			await.Until(t, "it asks", func() bool { return len(asked) > 0 })
			if err := p.end(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		})
	}
}
