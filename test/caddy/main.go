//go:build linux

// Command caddy measures limits of a thousand an hour in Caddy: this project's
// handler and mholt/caddy-ratelimit, in one run, each in a process of its own. It
// prints the table of docs/CADDY.md.
//
//	cd test/caddy && GOWORK=off go run . --keys 1000000
//
// Requests go through Caddy's routes in the process, without a network, each key
// once and then once again. A contender that takes more memory than --most is
// stopped, and the table says after how many keys.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/mholt/caddy-ratelimit"

	_ "github.com/stint-dev/stint/adapters/caddylimit"
)

// contenders are handlers of Caddy, as its JSON has them; the first limits nothing.
var contenders = []struct{ name, handler string }{
	{"no limit", ""},
	{"mholt/caddy-ratelimit v0.1.0", `{"handler":"rate_limit","rate_limits":{"all":{"key":"{http.request.header.X-Key}","window":"1h","max_events":1000}}},`},
	{"stint, `1000/h`", `{"handler":"stint","name":"all","limits":["1000/h"],"key":["{http.request.header.X-Key}"],"max_keys":KEYS,"dialect":"none"},`},
	{"stint, `1000/h sliding_log`", `{"handler":"stint","name":"all","limits":["1000/h sliding_log"],"key":["{http.request.header.X-Key}"],"max_keys":KEYS,"dialect":"none"},`},
}

// A result is what one contender took.
type result struct {
	Keys          int     // that it held
	Bytes         int64   // more than before
	First, Second float64 // nanoseconds of the processor for a request of a new key, and of a known one
}

func main() {
	keys := flag.Int("keys", 1_000_000, "how many")
	most := flag.Float64("most", 8, "the most memory of a contender, GB")
	one := flag.Int("one", -1, "of a child: which contender")
	flag.Parse()
	if err := run(*keys, int64(*most*1e9), *one); err != nil {
		fmt.Fprintln(os.Stderr, "caddy:", err)
		os.Exit(1)
	}
}

func run(keys int, most int64, one int) error {
	if one >= 0 {
		r, err := measure(contenders[one].handler, keys, most)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	fmt.Println("| | keys | memory | bytes a key | ns, a new key | ns, a known key |\n|---|--:|--:|--:|--:|--:|")
	for i, c := range contenders {
		child := exec.Command(os.Args[0], "--keys", strconv.Itoa(keys), "--most", fmt.Sprint(float64(most)/1e9), "--one", strconv.Itoa(i))
		child.Stderr = os.Stderr
		out, err := child.Output()
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		var r result
		if err := json.Unmarshal(out, &r); err != nil {
			return err
		}
		fmt.Println(r.row(c.name))
	}
	return nil
}

func (r *result) row(name string) string {
	return fmt.Sprintf("| %s | %d | %.0f MB | %d | %.0f | %.0f |", name, r.Keys, float64(r.Bytes)/1e6, r.Bytes/int64(r.Keys), r.First, r.Second)
}

// measure sends requests with as many keys through Caddy, twice.
func measure(handler string, keys int, most int64) (r result, err error) {
	server, stop, err := start(strings.ReplaceAll(handler, "KEYS", strconv.Itoa(2*keys)))
	if err != nil {
		return r, err
	}
	defer stop()
	if err := pass(server, -1); err != nil { // what Caddy makes at the first request
		return r, err
	}
	debug.FreeOSMemory()
	before := resident()
	begun := processor()
	for r.Keys < keys {
		if err := pass(server, r.Keys); err != nil {
			return r, err
		}
		if r.Keys++; r.Keys%10_000 == 0 && resident()-before > most {
			break
		}
	}
	r.First = float64(processor()-begun) / float64(r.Keys)
	begun = processor()
	for i := range r.Keys {
		if err := pass(server, i); err != nil {
			return r, err
		}
	}
	r.Second = float64(processor()-begun) / float64(r.Keys)
	debug.FreeOSMemory() // what requests left
	r.Bytes = resident() - before
	return r, nil
}

// start runs Caddy with a handler in front of an empty answer.
func start(handler string) (server http.Handler, stop func(), err error) {
	dir, err := os.MkdirTemp("", "caddy")
	if err != nil {
		return nil, nil, err
	}
	config := `{"admin":{"disabled":true,"config":{"persist":false}},"logging":{"logs":{"default":{"writer":{"output":"discard"}}}},
		"apps":{"http":{"servers":{"s":{"listen":["unix/` + filepath.Join(dir, "s") + `"],"automatic_https":{"disable":true},
		"routes":[{"handle":[` + handler + `{"handler":"static_response","status_code":204}]}]}}}}}`
	if err := caddy.Load([]byte(config), true); err != nil {
		return nil, nil, err
	}
	app, err := caddy.ActiveContext().App("http")
	if err != nil {
		return nil, nil, err
	}
	return app.(*caddyhttp.App).Servers["s"], func() { _, _ = caddy.Stop(), os.RemoveAll(dir) }, nil // the process ends
}

// pass sends a request of a key, which is to pass.
func pass(server http.Handler, key int) error {
	r, err := http.NewRequest(http.MethodGet, "http://caddy/", nil)
	if err != nil {
		return err
	}
	r.RemoteAddr = "192.0.2.1:1234"
	r.Header.Set("X-Key", strconv.Itoa(key))
	w := &answer{header: make(http.Header)}
	if server.ServeHTTP(w, r); w.status != http.StatusNoContent {
		return fmt.Errorf("key %d: status %d", key, w.status)
	}
	return nil
}

// An answer remembers its status.
type answer struct {
	header http.Header
	status int
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) Write(p []byte) (int, error) { return len(p), nil }
func (a *answer) WriteHeader(status int)      { a.status = status }

// processor returns the processor time that the process has had: what others on the
// machine do does not count.
func processor() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// resident returns the bytes of memory that the process has.
func resident() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, _ := strconv.ParseInt(string(bytes.Fields(text)[1]), 10, 64) // written by the kernel
	return pages * int64(os.Getpagesize())
}
