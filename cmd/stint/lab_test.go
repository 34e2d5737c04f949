package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	main "github.com/stint-dev/stint/cmd/stint"

	"github.com/stint-dev/stint/planner/lab"
)

// TestLabCopies runs the commands that the lab offers to copy: each must show
// the totals that the lab shows.
func TestLabCopies(t *testing.T) {
	limits := []string{
		"10/s burst 15", "10/s token_bucket_interval", "10/s burst 5 leaky_queue", "10/s fixed_window count_denied",
		"10/s sliding_log", "10/s sliding_counter relaxed", "10/s sliding_buckets parts 4", "20 per day in Europe/Paris", "5 in flight",
	}
	next := 0 // each shape has a third of the limits
	for name, arrivals := range map[string]lab.Arrivals{
		"edge":      {Shape: "edge", Size: 10, Gap: "100ms", Rate: "20/s", Period: "1s"},
		"steady":    {Shape: "steady", Rate: "7/300ms"},
		"bursts":    {Shape: "burst", Size: 30, Every: "700ms"},
		"on, off":   {Shape: "onoff", Rate: "30/s", On: "1s", Off: "800ms"},
		"random":    {Shape: "poisson", Rate: "15/s", Seed: 5},
		"hammer":    {Shape: "hammer", Rate: "20/s", Gap: "30ms"},
		"polite":    {Shape: "polite", Rate: "20/s"},
		"two":       {Shape: "several", Clients: 2, Rate: "15/s", Other: "5/s"},
		"one key":   {Shape: "several", Clients: 2, Rate: "15/s", Other: "5/s", Shared: true},
		"drawn":     {Shape: "draw", Cell: "100ms", Counts: []int64{0, 5, 0, 0, 30, 1, 1, 1, 7}},
		"text":      {Shape: "text", Text: "10@once  +1.5s\n 40@20/s"},
		"cut short": {Shape: "text", Text: "10@once +1.5s 400@20/s"},
		"a list":    {Shape: "list", Times: []int64{0, 0, 5, 2e9}, Costs: []int64{3, 9, 0, 2}, Keys: []string{"a", "it's", "a", "a\nb"}},
	} {
		next++
		for i := next % 3; i < len(limits); i += 3 {
			r := &lab.Request{Limits: limits[i : i+1], Arrivals: arrivals, Horizon: "6s", Lasts: "700ms", Copy: new(int)}
			a, err := lab.Simulate(t.Context(), r)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			row := a.Rows[0]
			got := runCopy(t, a.Copy.Simulate)
			want := fmt.Sprint(row.Passed+row.Delayed, row.Denied, row.Delayed, row.Most)
			if got != want {
				t.Errorf("%s, %s: %s; the lab says %s:\n%.300s", name, row.Limit, got, want, a.Copy.Simulate)
			}
		}
	}
}

// runCopy runs a command as a shell would, and returns its totals.
func runCopy(t *testing.T, command string) string {
	t.Helper()
	line, in, _ := strings.Cut(strings.ReplaceAll(command, "\\\n", ""), "\n")
	line, heredoc := strings.CutSuffix(line, " <<'END'")
	if heredoc {
		var ok bool
		if in, ok = strings.CutSuffix(in, "END\n"); !ok {
			t.Fatalf("an open document: %s", command)
		}
	}
	args := append(split(t, strings.TrimPrefix(line, "stint")), "--json")
	out := session{args: args, in: in}.run()
	var c struct {
		Rows []struct{ Allowed, Denied, Delayed, Most int64 }
	}
	if err := json.Unmarshal([]byte(out), &c); err != nil || len(c.Rows) != 1 {
		t.Fatalf("%v: %s\n%.300s", err, out, command)
	}
	r := c.Rows[0]
	return fmt.Sprint(r.Allowed, r.Denied, r.Delayed, r.Most)
}

// TestLabShell has a shell read a command that brings its requests along, with
// names that a shell could misread.
func TestLabShell(t *testing.T) {
	zero := 0
	a, err := lab.Simulate(t.Context(), &lab.Request{
		Limits: []string{"10/s burst 2"}, Copy: &zero,
		Arrivals: lab.Arrivals{Shape: "list", Times: []int64{0, 1}, Keys: []string{"it's", "$HOME"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `stint() { printf '%s|' "$@"; cat; }; `+a.Copy.Simulate).CombinedOutput()
	want := `simulate|--compare|10/1s burst 2|{"t":"0s","key":"it's","cost":1}` + "\n" + `{"t":"1ns","key":"$HOME","cost":1}` + "\n"
	if err != nil || string(out) != want {
		t.Errorf("%v: %s; want %s", err, out, want)
	}
}

// TestLab starts the lab, asks it for its page, and stops it.
func TestLab(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	var errs bytes.Buffer
	status := make(chan int)
	go func() {
		status <- main.Run(ctx, []string{"lab", "--listen", "127.0.0.1:0"}, strings.NewReader(""), in, &errs)
	}()
	said := make([]byte, 200)
	n, err := out.Read(said)
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+/`).FindString(string(said[:n]))
	if err != nil || address == "" {
		t.Fatalf("%v: %s", err, said[:n])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !strings.Contains(string(page), "<title>stint lab</title>") {
		t.Errorf("%v: %s", err, page)
	}
	cancel()
	if s := <-status; s != 0 || errs.Len() > 0 {
		t.Errorf("status %d: %s", s, &errs)
	}
}

// TestLabLoopback: the lab is for this machine.
func TestLabLoopback(t *testing.T) {
	for _, address := range []string{":8090", "0.0.0.0:8090", "192.0.2.1:80", "lab.example:80"} {
		got := session{args: []string{"lab", "--listen", address}}.run()
		if !strings.Contains(got, "loopback only") || !strings.HasSuffix(got, "exit 2\n") {
			t.Errorf("--listen %s: %s", address, got)
		}
	}
}
