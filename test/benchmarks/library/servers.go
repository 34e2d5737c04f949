package library

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/stint-dev/stint/test/benchmarks/report"
)

// stintCommand is the program that is measured, built with the defaults.
const stintCommand = "github.com/stint-dev/stint/cmd/stint"

// serverRules hold every client to plenty, by address.
const serverRules = `{"rules": [{"name": "all", "key": ["ip"], "limits": ["1000000000/s"]}]}`

// servers measures `stint serve` and `stint proxy` beside bare servers.
func (f *figures) servers() (err error) {
	dir, err := os.MkdirTemp("", "stint-benchmarks")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // temporary files: the system clears what stays
	program, rules := filepath.Join(dir, "stint"), filepath.Join(dir, "rules.json")
	if err := os.WriteFile(rules, []byte(serverRules), 0o600); err != nil {
		return err
	}
	if said, err := exec.Command("go", "build", "-o", program, stintCommand).CombinedOutput(); err != nil {
		return fmt.Errorf("building stint: %w: %s", err, said)
	}
	if err := f.check(program, rules); err != nil {
		return fmt.Errorf("/v1/check: %w", err)
	}
	if err := f.proxies(dir, program, rules); err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	return nil
}

// A rival is one server and what is asked of it.
type rival struct {
	*process
	*client
	cpu, p50, p99, rate []float64 // by round: µs, µs, µs, requests a second
}

// rivals are servers that are asked the same in turns.
type rivals []*rival

func (rs rivals) stop() {
	for _, r := range rs {
		if r.client != nil {
			r.close()
		}
		r.stop()
	}
}

// join connects to a server that was started, or passes on why it was not.
func (rs *rivals) join(p *process, err error, requests func(address string) [][]byte) error {
	if err != nil {
		return err
	}
	r := &rival{process: p}
	*rs = append(*rs, r)
	r.client, err = dial(p.address, requests(p.address))
	return err
}

const (
	// turnSlices is how many slices each server is asked for at a time, flat
	// out and paced alike, and turns how often it is its turn in a round: often,
	// since a machine does not stay the same for long.
	turnSlices = 10
	turns      = 3
	// ease is the fraction of the slowest server's full rate at which all are then
	// called, to measure the time of an answer when no server is overloaded.
	ease = 0.3
	// unquiet is how far the p99s of two servers that do the same may be apart.
	unquiet = 1.15
)

// measure asks all servers in turns: flat out for the processor time, then at
// one pace for how long answers take.
func (rs rivals) measure(f *figures) error {
	turn := f.Slice * turnSlices
	slowest := 0.0
	for _, r := range rs {
		n, err := r.flatOut(turn) // warms up
		if err != nil {
			return fmt.Errorf("%s: %w: %s", r.name, err, r.said)
		}
		if rate := float64(n) / turn.Seconds(); slowest == 0 || rate < slowest {
			slowest = rate
		}
	}
	for range f.Rounds * turns {
		for _, r := range rs {
			begun, before := time.Now(), r.used()
			n, err := r.flatOut(turn)
			if err != nil {
				return fmt.Errorf("%s: %w: %s", r.name, err, r.said)
			}
			r.rate = append(r.rate, float64(n)/time.Since(begun).Seconds())
			r.cpu = append(r.cpu, float64(r.used()-before)/float64(n)/1000)
		}
		for _, r := range rs {
			took, err := r.paced(max(slowest*ease, connections), turn)
			if err != nil {
				return fmt.Errorf("%s: %w: %s", r.name, err, r.said)
			}
			at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))]) / 1000 }
			r.p50, r.p99 = append(r.p50, at(0.5)), append(r.p99, at(0.99))
		}
	}
	return nil
}

// table prints what was measured, beside the first.
func (rs rivals) table(f *figures, title string) {
	rows := [][]string{{title, "CPU, µs a request", "× " + rs[0].name, "requests/s flat out", "p50, µs", "p99, µs", "× " + rs[0].name}}
	for _, r := range rs {
		rows = append(rows, []string{r.name, report.Number(report.Median(r.cpu)), fmt.Sprintf("%.2f", report.Ratio(r.cpu, rs[0].cpu)), fmt.Sprintf("%.0f", report.Median(r.rate)),
			report.Number(report.Median(r.p50)), report.Number(report.Median(r.p99)), fmt.Sprintf("%.2f", report.Ratio(r.p99, rs[0].p99))})
	}
	f.Table(rows)
}

// questions are what a client of /v1/check asks, about many addresses.
func questions(address string) [][]byte {
	list := make([][]byte, addresses)
	for i := range list {
		body := fmt.Sprintf(`{"attributes":{"method":"POST","path":"/login","ip":"192.0.%d.%d"},"cost":1}`, i/250, i%250)
		list[i] = fmt.Appendf(nil, "POST /v1/check HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			address, len(body), body)
	}
	return list
}

// check measures /v1/check beside servers that read the same bodies and print
// the answer that stint gave to the first.
func (f *figures) check(program, rules string) error {
	var rs rivals
	defer func() { rs.stop() }()
	address, err := freeAddress()
	if err != nil {
		return err
	}
	stint, err := startServer("stint serve", address, program, "serve", "-c", rules, "--http", address)
	if err != nil {
		return err
	}
	answer, err := firstAnswer(address)
	if err != nil {
		stint.stop()
		return err
	}
	for _, floor := range []struct {
		name     string
		timeouts bool
	}{{"net/http", false}, {"net/http, the same timeouts", true}} {
		answer.Timeouts = floor.timeouts
		with, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		p, err := startChild(floor.name, "answer", string(with))
		if err := rs.join(p, err, questions); err != nil {
			stint.stop()
			return err
		}
	}
	if err := rs.join(stint, nil, questions); err != nil {
		return err
	}
	if err := rs.measure(f); err != nil {
		return err
	}
	rs.table(f, "POST /v1/check, one rule")
	bare, same, ours := rs[0], rs[1], rs[2]
	f.AtMost(1.3, report.Ratio(ours.cpu, bare.cpu), " ×", "/v1/check, processor time beside a bare net/http server of the same bodies")
	f.AtMost(1.3, report.Ratio(ours.p99, bare.p99), " ×", "/v1/check, p99 at the same load beside that server's")
	// The two bare servers do the same: where one is much slower than the other,
	// the machine does other things, and a p99 says how long those take.
	off := report.Ratio(same.p99, bare.p99)
	f.Doubt(off > unquiet || off < 1/unquiet)
	return nil
}

// firstAnswer returns what stint says to the first question.
func firstAnswer(address string) (canned, error) {
	_, body, _ := bytes.Cut(questions(address)[0], []byte("\r\n\r\n"))
	resp, err := http.Post("http://"+address+"/v1/check", "application/json", bytes.NewReader(body))
	if err != nil {
		return canned{}, err
	}
	defer func() { _ = resp.Body.Close() }() // read below
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return canned{}, fmt.Errorf("status %s: %s: %w", resp.Status, text, err)
	}
	resp.Header.Del("Date")
	return canned{Header: resp.Header, Body: string(text)}, nil
}

// proxies measures the proxy beside a bare ReverseProxy and, if there is one,
// nginx, all in front of the same server.
func (f *figures) proxies(dir, program, rules string) error {
	with, err := json.Marshal(canned{Header: http.Header{"Content-Type": {"text/plain"}}, Body: "hello\n"})
	if err != nil {
		return err
	}
	behind, err := startChild("the server behind", "answer", string(with))
	if err != nil {
		return err
	}
	defer behind.stop()
	var rs rivals
	defer func() { rs.stop() }()
	get := func(address string) [][]byte {
		return [][]byte{fmt.Appendf(nil, "GET /hello HTTP/1.1\r\nHost: %s\r\n\r\n", address)}
	}
	p, err := startChild("ReverseProxy", "proxy", "http://"+behind.address)
	if err := rs.join(p, err, get); err != nil {
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	p, err = startServer("stint proxy", address, program, "proxy", "-c", rules, "--listen", address, "--upstream", "http://"+behind.address)
	if err := rs.join(p, err, get); err != nil {
		return err
	}
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		fmt.Fprint(f.Out, "\nnginx is not installed: its limit_req is left out.\n")
	} else if p, err = startNginx(nginx, dir, behind.address); err != nil {
		return err
	} else if err := rs.join(p, nil, get); err != nil {
		return err
	}
	if err := rs.measure(f); err != nil {
		return err
	}
	rs.table(f, "a proxy with one rule")
	if nginx != "" {
		said, _ := exec.Command(nginx, "-v").CombinedOutput() // a name for the reader; nothing depends on it
		fmt.Fprintf(f.Out, "\nnginx is %s, with one worker, limit_req by address and connections to the server behind kept.\n",
			strings.TrimSpace(strings.TrimPrefix(string(said), "nginx version: ")))
	}
	f.AtMost(1.15, report.Ratio(rs[1].cpu, rs[0].cpu), " ×", "stint proxy, processor time beside a bare ReverseProxy")
	return nil
}

// nginxConfig is one process that limits by address and passes on.
const nginxConfig = `daemon off;
master_process off;
error_log stderr crit;
pid %[1]s/nginx.pid;
events { worker_connections 512; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	limit_req_zone $binary_remote_addr zone=all:10m rate=1000000r/s;
	upstream behind { server %[3]s; keepalive 64; keepalive_requests 100000000; }
	server {
		listen %[2]s;
		keepalive_requests 100000000;
		location / {
			limit_req zone=all burst=1000 nodelay;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_set_header X-Forwarded-For $remote_addr;
			proxy_pass http://behind;
		}
	}
}
`

func startNginx(program, dir, behind string) (*process, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, nginxConfig, dir, address, behind), 0o600); err != nil {
		return nil, err
	}
	return startServer("nginx limit_req", address, program, "-e", "stderr", "-p", dir, "-c", config)
}
