package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	main "github.com/stint-dev/stint/cmd/stint"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/need"
)

// A fleet is three servers of one file of rules, each with a memory of its own.
type fleet struct {
	t     *testing.T
	nodes []*running
}

func startFleet(t *testing.T) *fleet {
	t.Cleanup(main.SetAskWithin(patience))
	f := &fleet{t: t}
	file := disk.Write(t, t.TempDir()+"/stint.yaml", `rules: [{name: orders, key: [header.x-api-key], limits: ["4 per day"]}]`)
	for range 3 {
		f.nodes = append(f.nodes, operated(t, file, "--state", t.TempDir()+"/state"))
	}
	return f
}

// stint asks all servers, and others, with a command.
func (f *fleet) stint(status int, others []string, args ...string) (out, errs string) {
	f.t.Helper()
	for _, p := range f.nodes {
		others = append(others, p.admin)
	}
	for _, one := range others {
		args = append(args, "--server", one)
	}
	got, out, errs := runStint(f.t, args...)
	if got != status {
		f.t.Fatalf("stint %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, status, out, errs)
	}
	return out, errs
}

// TestFleet asks three servers, first while all answer, then without one: the answer says
// that it is unknown what that one has.
func TestFleet(t *testing.T) {
	f := startFleet(t)
	for i, p := range f.nodes {
		p.requests("partner-1", 5+i) // of which 4 pass
		p.requests(fmt.Sprintf("only-%d", i+1), 5)
	}
	sums := func(text string) string {
		b := decode[board](t, text)
		return fmt.Sprint(b.Rules[0].Allowed, " ", b.Rules[0].Denied, " ", b.Denied[0].Key, " ", b.Denied[0].Count)
	}
	has := func(out string, want ...string) {
		t.Helper()
		for _, one := range want {
			if strings.Count(out, one) != 1 {
				t.Errorf("%q is not there once:\n%s", one, out)
			}
		}
	}
	who := []string{"inspect", "--header", "x-api-key=only-2"}
	out, _ := f.stint(0, nil, "top", "--json")
	if got := sums(out); got != "24 9 partner-1 6" || strings.Contains(out, "unknown") {
		t.Errorf("%s\n%s", got, out)
	}
	out, _ = f.stint(0, nil, "block", "list")
	has(out, "partner-1: denied", "only-1: denied", "only-2: denied", "only-3: denied")
	out, _ = f.stint(0, nil, who...)
	has(out, "at "+f.nodes[0].admin+"\nPasses now.", "at "+f.nodes[1].admin+"\nDenied now by rule orders.", "at "+f.nodes[2].admin+"\nPasses now.")
	out, _ = f.stint(0, nil, append(who, "--json")...)
	has(out, `{"server":"`+f.nodes[1].admin+`","story":{`)

	gone := f.nodes[2].admin
	_ = f.nodes[2].end(syscall.SIGKILL)
	for _, args := range [][]string{{"top"}, {"block", "list"}, who} {
		out, errs := f.stint(1, nil, args...)
		has(out, "unknown at "+gone+": ")
		has(errs, "1 of 3 servers did not answer")
		out, _ = f.stint(1, nil, append(args, "--json")...)
		has(out, `{"server":"`+gone+`","error":"`)
		if args[0] == "top" {
			has(sums(out), "16 5 partner-1 3")
		} else if !json.Valid([]byte(strings.ReplaceAll(out, "}\n{", "},\n{"))) && args[0] == "block" {
			t.Errorf("not JSON:\n%s", out)
		}
	}
	f.nodes = f.nodes[2:]
	if out, errs := f.stint(1, nil, "block", "list", "--json"); out != "" || !strings.Contains(errs, gone) {
		t.Errorf("the only one is gone:\n%s%s", out, errs)
	}
	if _, errs := f.stint(2, []string{gone + "/"}, "top"); !strings.Contains(errs, "is there twice") {
		t.Error(errs)
	}
}

// TestFleetSlow has a server that takes the question and never answers: the others'
// answers are there, and it is named.
func TestFleetSlow(t *testing.T) {
	need.Time(t)
	f := startFleet(t)
	leave := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-leave:
		case <-r.Context().Done():
		}
	}))
	defer slow.Close()
	defer close(leave)
	main.SetAskWithin(20 * time.Second) // in which the others answer
	out, errs := f.stint(1, []string{slow.URL}, "top")
	if !strings.Contains(out, "unknown at "+slow.URL+": ") || !strings.Contains(out, f.nodes[2].admin+" ") || !strings.Contains(errs, "1 of 4 servers did not answer") {
		t.Errorf("%s%s", out, errs)
	}
}

// TestBlocksOfSeveral: each server has its own blocks, and what several have is one line.
func TestBlocksOfSeveral(t *testing.T) {
	f := startFleet(t)
	for i, p := range f.nodes {
		for _, one := range []string{"all", fmt.Sprintf("only-%d", i)} {
			must(t, "block", "set", one, "--rule", "orders", "--server", p.admin)
		}
	}
	out, _ := f.stint(0, nil, "block", "list")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(lines)
	for i, want := range []string{"all", "only-0", "only-1", "only-2"} {
		if len(lines) != 4 || !strings.HasPrefix(lines[i], "orders "+want+": block") {
			t.Fatalf("%q is not there once:\n%s", want, out)
		}
	}
}
