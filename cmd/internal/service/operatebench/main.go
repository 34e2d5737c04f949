// Operatebench measures what operators' tools cost: the processor time of a
// request through stint serve with the recorder and without, in processes of
// their own, round by round; how long stint inspect waits beside full load; how long
// requests take while simulations run; and a rehearsal of a million requests that a
// server recorded. Run it as make bench-operate, or with the names of some (price,
// inspect, simulate, rehearse); all take about three minutes.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	rounds = 9
	each   = 3 * time.Second // of a measurement
	// conns is how many connections the load has, and clients how many keys.
	conns   = 8
	clients = 10_000
	// recorded is how many requests are rehearsed, and batch how many one body
	// brings in.
	recorded = 1_000_000
	batch    = 100

	mostTimes    = 1.05 // the processor time of a request, with and without
	mostInspect  = 10 * time.Millisecond
	mostRehearse = 2 * time.Second
)

const benchRules = `rules:
  - name: login
    match: {method: POST, path: /login}
    key: [ip]
    limits: [5 per minute sliding_log, every 2s]
  - name: api
    match: {path: /api/**}
    key: [header.x-api-key]
    limits: [50 per minute]
    overrides: [{when: {header.x-api-key: partner-*}, limits: [100 per minute]}]
  - name: site
    key: [ip]
    limits: [100/s burst 200]
`

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "operatebench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "stint-operatebench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // temporary files: the system clears what stays
	program, rules := filepath.Join(dir, "stint"), filepath.Join(dir, "stint.yaml")
	if err := os.WriteFile(rules, []byte(benchRules), 0o600); err != nil {
		return err
	}
	if said, err := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/stint-dev/stint/cmd/stint").CombinedOutput(); err != nil {
		return fmt.Errorf("building stint: %w: %s", err, said)
	}
	with, err := start(ctx, program, rules, "127.0.0.1:18481", "127.0.0.1:18482")
	if err != nil {
		return err
	}
	defer with.stop()
	without, err := start(ctx, program, rules, "127.0.0.1:18483", "127.0.0.1:18484", "--record", "off")
	if err != nil {
		return err
	}
	defer without.stop()
	for _, one := range []struct {
		name    string
		measure func() error
	}{
		{"price", func() error { return price(with, without) }},
		{"inspect", func() error { return inspection(ctx, with) }},
		{"simulate", func() error { return simulation(ctx, with) }},
		{"rehearse", func() error { return rehearsal(ctx, with, rules) }},
	} {
		if len(os.Args) > 1 && !slices.Contains(os.Args[1:], one.name) {
			continue
		}
		if err := one.measure(); err != nil {
			return err
		}
	}
	return nil
}

// inspection asks how clients stand while as much is asked as goes.
func inspection(ctx context.Context, s *server) error {
	loaded := make(chan error, 1)
	go func() {
		_, err := s.load(2 * each)
		loaded <- err
	}()
	var took []time.Duration
	for n := 0; len(loaded) == 0; n++ {
		body := fmt.Sprintf(`{"attributes":{"ip":"198.51.%d.%d","header.x-api-key":"key-%06d"}}`, n/256%40, n%256, n%clients)
		began := time.Now()
		if _, err := s.post(ctx, s.admin, "/v1/inspect", body); err != nil {
			return errors.Join(err, <-loaded)
		}
		took = append(took, time.Since(began))
		time.Sleep(5 * time.Millisecond)
	}
	slices.Sort(took)
	median := took[len(took)/2]
	fmt.Printf("inspect beside full load, %d times, the load on the same cores: 90 %% within %v, 99 %% within %v\n", len(took), took[len(took)*9/10].Round(10*time.Microsecond), took[len(took)*99/100].Round(10*time.Microsecond))
	verdict(fmt.Sprintf("median %v", median.Round(10*time.Microsecond)), fmt.Sprintf("at most %v", mostInspect), median <= mostInspect)
	return <-loaded
}

// A server is stint serve.
type server struct {
	process     *exec.Cmd
	http, admin string
}

func start(ctx context.Context, program, rules, address, admin string, more ...string) (*server, error) {
	s := &server{exec.CommandContext(ctx, program, append([]string{"serve", "-c", rules, "--http", address, "--admin", admin}, more...)...), address, admin}
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	for range 100 {
		if conn, err := net.Dial("tcp", address); err == nil {
			return s, conn.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.stop()
	return nil, errors.New("stint serve does not listen")
}

func (s *server) stop() {
	_ = s.process.Process.Kill() // nothing of it is kept
	_ = s.process.Wait()
}

// cpu returns the processor time that the process has used, to a hundredth of a
// second.
func (s *server) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.process.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("the processor time is read as Linux has it: %w", err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var ticks int64
	for _, i := range []int{11, 12} { // utime and stime
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// price compares the processor time of requests, in turns.
func price(with, without *server) error {
	var ratios []float64
	fmt.Printf("processor time of a request to /v1/check, µs\n%8s%12s%12s%10s\n", "round", "recorder", "none", "ratio")
	for round := range rounds + 1 {
		var spent [2]float64
		order := []int{0, 1}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, i := range order {
			var err error
			if spent[i], err = []*server{with, without}[i].load(each); err != nil {
				return err
			}
		}
		if round == 0 {
			continue // to warm up
		}
		ratios = append(ratios, spent[0]/spent[1])
		fmt.Printf("%8d%12.2f%12.2f%10.3f\n", round, spent[0], spent[1], spent[0]/spent[1])
	}
	slices.Sort(ratios)
	verdict(fmt.Sprintf("median %.3f ×", ratios[len(ratios)/2]), fmt.Sprintf("at most %.2f ×", mostTimes), ratios[len(ratios)/2] <= mostTimes)
	return nil
}

func verdict(is, want string, good bool) {
	word := "held"
	if !good {
		word = "MISSED"
	}
	fmt.Printf("%s; target %s: %s\n\n", is, want, word)
}

// load asks for a while, and returns the processor time of a request in µs.
func (s *server) load(d time.Duration) (float64, error) {
	before, err := s.cpu()
	if err != nil {
		return 0, err
	}
	counts, failures := make(chan int, conns), make(chan error, conns)
	for c := range conns {
		go func() {
			n, err := ask(s.http, c, time.Now().Add(d))
			counts <- n
			failures <- err
		}()
	}
	total := 0
	for range conns {
		total += <-counts
		err = errors.Join(err, <-failures)
	}
	after, failed := s.cpu()
	if err = errors.Join(err, failed); err != nil {
		return 0, err
	}
	return float64((after - before).Nanoseconds()) / 1000 / float64(total), nil
}

// attributes describes the n-th request.
func attributes(n int) string {
	client := n * 7919 % clients
	method, path := "GET", fmt.Sprintf("/api/items/%d", n%1000)
	if n%10 == 0 {
		method, path = "POST", "/login"
	}
	return fmt.Sprintf(`{"attributes":{"method":"%s","path":"%s","ip":"198.51.%d.%d","header.x-api-key":"key-%06d"}}`, method, path, client/256, client%256, client)
}

// ask sends one request after another on a connection.
func ask(address string, seed int, until time.Time) (n int, err error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	requests := make([][]byte, 1000)
	for i := range requests {
		requests[i] = request(seed*100_003 + i)
	}
	answer := make([]byte, 8<<10)
	for ; n&15 != 0 || time.Now().Before(until); n++ {
		if err := exchange(conn, requests[n%len(requests)], answer); err != nil {
			return n, err
		}
	}
	return n, nil
}

// request returns the n-th request as it is sent.
func request(n int) []byte {
	body := attributes(n)
	return fmt.Appendf(nil, "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// exchange sends a request, and reads until its answer is there.
func exchange(conn net.Conn, request, answer []byte) error {
	if _, err := conn.Write(request); err != nil {
		return err
	}
	for got := 0; !whole(answer[:got]); {
		m, err := conn.Read(answer[got:])
		if err != nil {
			return err
		}
		got += m
	}
	return nil
}

// whole reports whether an answer, which ends with a line, has its body.
func whole(answer []byte) bool {
	head := bytes.Index(answer, []byte("\r\n\r\n"))
	return head >= 0 && len(answer) > head+4 && answer[len(answer)-1] == '\n'
}

// rehearsal fills the recorder of a server, and tries rules on what it has.
func rehearsal(ctx context.Context, s *server, rules string) error {
	for n := 0; n < recorded+recorded/20; n += batch { // a little more than it keeps
		var b strings.Builder
		b.WriteString(`{"requests":[`)
		for i := range batch {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(attributes(n + i))
		}
		b.WriteString("]}")
		if _, err := s.post(ctx, s.http, "/v1/check", b.String()); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(rules)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]string{"document": strings.Replace(string(text), "50 per minute", "20 per minute", 1)})
	if err != nil {
		return err
	}
	var took, spent []time.Duration
	var report struct {
		Requests       int64
		WarmUpRequests int64 `json:"warm_up_requests"`
		NewlyDenied    int64 `json:"newly_denied"`
	}
	for range 5 {
		before, err := s.cpu()
		if err != nil {
			return err
		}
		began := time.Now()
		answer, err := s.post(ctx, s.admin, "/v1/rehearse", string(body))
		if err != nil {
			return err
		}
		took = append(took, time.Since(began).Round(time.Millisecond))
		after, err := s.cpu()
		if err != nil {
			return err
		}
		spent = append(spent, after-before)
		if err := json.Unmarshal(answer, &report); err != nil {
			return err
		}
	}
	slices.Sort(took)
	all := report.Requests + report.WarmUpRequests
	median := took[len(took)/2] * recorded / time.Duration(max(all, 1))
	fmt.Printf("rehearsal of %d requests, %d newly denied: %v\nprocessor time, of all cores and pauses apart: %v\n", all, report.NewlyDenied, took, spent)
	verdict(fmt.Sprintf("median %v for a million", median.Round(time.Millisecond)), fmt.Sprintf("at most %v", mostRehearse), median <= mostRehearse)
	return nil
}

func (s *server) post(ctx context.Context, address, path, body string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() // it was only read
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, answer)
	}
	return answer, err
}
