package main_test

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/await"
)

// TestFewDescriptors holds as many connections open as it gets, of a process
// with few descriptors: clients whose bodies do not come, and Redis clients
// that say nothing. Operators are answered all the same.
func TestFewDescriptors(t *testing.T) {
	behind := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer behind.Close()
	dir := t.TempDir()
	rules := writeFile(t, dir+"/rules.yaml", "rules: [{name: a, key: [ip], limits: 50/s burst 100 leaky_queue}]\n")
	token := writeFile(t, dir+"/token", serveToken+"\n")
	for _, test := range []struct{ name, args, hello, later string }{
		{"proxy", "proxy -c " + rules + " --listen 127.0.0.1:0 --upstream " + behind.URL, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\n\r\n"},
		{"resp", "serve -c " + rules + " --http 127.0.0.1:0 --resp 127.0.0.1:0 --token-file " + token, "PING\r\n", "PING\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			at := fewDescriptors(t, 256, test.args+" --admin 127.0.0.1:0")
			address := at["address"]
			if test.name == "resp" {
				address = at["resp"]
			}
			var open []net.Conn
			for range 300 {
				conn, err := net.DialTimeout("tcp", address, 5*time.Second)
				if err != nil {
					break // the backlog is full, which is as good
				}
				open = append(open, conn)
				fmt.Fprint(conn, test.hello)
			}
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
			for range 5 {
				answer, err := client.Get("http://" + at["admin"] + "/livez")
				if err != nil {
					t.Fatal("liveness: ", err)
				}
				_ = answer.Body.Close() // the status says it
			}
			for _, conn := range open {
				_ = conn.Close() // this is the point
			}
			await.Until(t, "a client is answered after the flood", func() bool { return answers(address, test.later) })
		})
	}
}

var listening = regexp.MustCompile(`msg=listening (?:interface=(\w+) )?(admin|address)=(\S+)\s`)

// answers reports whether a new client is answered.
func answers(address, request string) bool {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		return false
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && line != ""
}

// fewDescriptors runs the program with that many descriptors until the test
// ends, and returns where it listens, and its "pid".
func fewDescriptors(t *testing.T, n int, args string) map[string]string {
	t.Helper()
	script := fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, n)
	c := exec.Command("sh", append([]string{"-c", script, os.Args[0]}, strings.Fields(args)...)...)
	c.Env = append(os.Environ(), "STINT_TEST_MAIN=1")
	p, at := begin(t, "stint", c), make(map[string]string)
	want := 2 + strings.Count(args, "--resp") + strings.Count(args, "--grpc")
	await.Until(t, "it listens", func() bool {
		for _, m := range listening.FindAllStringSubmatch(p.log(), -1) {
			at[cmp.Or(m[1], m[2])] = m[3]
		}
		return len(at) == want
	})
	at["pid"] = strconv.Itoa(c.Process.Pid)
	return at
}
