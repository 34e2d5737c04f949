package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stint-dev/stint/cmd/internal/planner/lab"
)

// engine builds what browsers run.
func engine(t *testing.T) (program, glue string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "lab.wasm")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".") // as the site has it, so that it is compiled once
	build.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return program, filepath.Join(strings.TrimSpace(string(root)), "lib", "wasm", "wasm_exec.js")
}

var periods = []string{"s", "100ms", "7s", "m", "h", "3.333s"}

// limit draws one of any kind.
func limit(r *rand.Rand) string {
	count, period := 1+r.IntN(20), periods[r.IntN(len(periods))]
	kind := []string{"", " burst 3", " burst 40", " token_bucket_interval", " leaky_queue", " burst 5 leaky_queue", " fixed_window", " sliding_log",
		" sliding_counter", " sliding_counter relaxed", " sliding_buckets", " sliding_buckets parts 7", " sliding_log count_denied", " fixed_window count_denied"}
	switch r.IntN(12) {
	case 0:
		return fmt.Sprintf("every %dms", 1+r.IntN(3000))
	case 1:
		return fmt.Sprintf("%d per day in Pacific/Apia", count)
	}
	return fmt.Sprintf("%d/%s%s", count, period, kind[r.IntN(len(kind))])
}

// arrivals draws requests of any shape, a few hundred at most.
func arrivals(r *rand.Rand) map[string]any {
	rate := fmt.Sprintf("%d/1s", 1+r.IntN(40))
	switch r.IntN(10) {
	case 0:
		return map[string]any{"shape": "edge", "size": 1 + r.IntN(20), "gap": "100ms", "rate": rate, "period": "1s"}
	case 1:
		return map[string]any{"shape": "steady", "rate": rate}
	case 2:
		return map[string]any{"shape": "burst", "size": 1 + r.IntN(30), "every": "700ms"}
	case 3:
		return map[string]any{"shape": "onoff", "rate": rate, "on": "1s", "off": "300ms"}
	case 4:
		return map[string]any{"shape": "poisson", "rate": rate, "seed": r.Uint32()}
	case 5:
		return map[string]any{"shape": "hammer", "rate": rate, "gap": "200ms"}
	case 6:
		return map[string]any{"shape": "polite", "rate": rate}
	case 7:
		return map[string]any{"shape": "several", "clients": 2 + r.IntN(5), "rate": rate, "other": "3/1s", "shared": r.IntN(2) == 0}
	case 8:
		return map[string]any{"shape": "text", "text": fmt.Sprintf("%d@once +%dms %d@17/s +1s", 1+r.IntN(20), 1+r.IntN(2000), 1+r.IntN(60))}
	}
	times, costs, keys := []int64{}, []int64{}, []string{}
	at := int64(0)
	for range 1 + r.IntN(80) {
		at += r.Int64N(200e6) * r.Int64N(2)
		times, costs, keys = append(times, at), append(costs, r.Int64N(4)), append(keys, string(rune('a'+r.IntN(3))))
	}
	return map[string]any{"shape": "list", "times": times, "costs": costs, "keys": keys}
}

// body draws a question; some are at fault.
func body(r *rand.Rand) map[string]any {
	limits := make([]string, 1+r.IntN(3))
	for i := range limits {
		limits[i] = limit(r)
	}
	b := map[string]any{"limits": limits, "arrivals": arrivals(r), "horizon": fmt.Sprintf("%dms", 2000+r.IntN(4000)), "columns": 1 + r.IntN(60)}
	switch r.IntN(8) {
	case 0:
		b["why"] = map[string]int{"limit": r.IntN(len(limits)), "request": r.IntN(30)}
	case 1:
		b["copy"] = r.IntN(len(limits))
	case 2:
		b["watch"] = "a"
	case 3:
		b["unknown"] = true
	}
	return b
}

// TestSameAnswers asks the engine for browsers, in Node, and the server's lab the
// same, and compares every byte of what they answer.
func TestSameAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the engine")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("there is no node to run the engine with: sudo apt-get install nodejs")
	}
	program, glue := engine(t)
	server := httptest.NewServer(lab.Simulator(false))
	defer server.Close()
	r := rand.New(rand.NewPCG(18, 6))
	var bodies bytes.Buffer
	var want []string
	decisions, faults := 0, 0
	for decisions < 12_000 {
		text, err := json.Marshal(body(r))
		if err != nil {
			t.Fatal(err)
		}
		answer, status := post(t, server.URL, text)
		var counted struct{ Rows []struct{ Requests int } }
		if err := json.Unmarshal([]byte(answer), &counted); err != nil {
			t.Fatal(err)
		}
		for _, row := range counted.Rows {
			decisions += row.Requests
		}
		if status != http.StatusOK {
			faults++
		}
		bodies.Write(append(text, '\n'))
		want = append(want, answer)
	}
	got := play(t, node, program, glue, &bodies)
	if len(got) != len(want)+1 || faults < 5 || faults > len(want)/2 {
		t.Fatalf("%d answers to %d questions, %d at fault", len(got)-1, len(want), faults)
	}
	choices, err := json.Marshal(lab.Choose())
	if err != nil || got[0] != string(choices) {
		t.Errorf("choices %.200s, want %.200s (%v)", got[0], choices, err)
	}
	for i, answer := range got[1:] {
		if answer != want[i] {
			t.Errorf("question %d: %.600s\nwant %.600s", i, answer, want[i])
		}
	}
	t.Logf("%d decisions, %d questions, %d of them at fault", decisions, len(want), faults)
}

// play has the engine answer bodies, one a line, in Node: its choices first.
func play(t *testing.T, node, program, glue string, bodies io.Reader) []string {
	t.Helper()
	run := exec.Command(node, "testdata/answer.js", glue, program)
	run.Stdin, run.Stderr = bodies, os.Stderr
	out, err := run.Output()
	if err != nil {
		t.Fatalf("%v: %.400s", err, out)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// long is a question that would take minutes: half of the requests fill a log, and
// each of the others looks through all of it.
func long() []byte {
	const n, limit = lab.MaxArrivals, 4_000_000
	times, costs := make([]int64, n), make([]int64, n)
	for i := range n {
		times[i], costs[i] = int64(i)*1000, limit
		if i < n/2 {
			costs[i] = limit / (n / 2)
		}
	}
	limits := slices.Repeat([]string{fmt.Sprint(limit, "/1h sliding_log")}, lab.MaxLimits)
	text, err := json.Marshal(map[string]any{"limits": limits, "arrivals": map[string]any{"shape": "list", "times": times, "costs": costs}, "horizon": "1h"})
	if err != nil {
		panic(err)
	}
	return text
}

// TestLong: what takes too long is given up, and the engine answers the next.
func TestLong(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the engine, and waits for the time that a simulation has")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("there is no node to run the engine with: sudo apt-get install nodejs")
	}
	program, glue := engine(t)
	next := `{"limits":["3/m"],"arrivals":{"shape":"text","text":"5@once"},"horizon":"1s"}`
	got := play(t, node, program, glue, strings.NewReader(string(long())+"\n"+next+"\n"))
	if len(got) != 3 || !strings.HasPrefix(got[1], `{"error":"this takes longer than 5s`) || !strings.Contains(got[2], `"verdicts":"pppdd"`) {
		t.Errorf("%.400s", got[1:])
	}
}

func post(t *testing.T, url string, body []byte) (answer string, status int) {
	t.Helper()
	r, err := http.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(text), "\n"), r.StatusCode
}
