package main_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/internal/testkit/race"
	"github.com/stint-dev/stint/memstore"

	main "github.com/stint-dev/stint/cmd/stint"
	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/rules"
	"github.com/stint-dev/stint/service/server"
)

// A hit is a line of a log, read the slow way: when it came, and the request that a
// server gets for it.
type hit struct {
	at         time.Time
	attributes map[string]string
}

var combinedLine = regexp.MustCompile(`(?m)^([^ \n]+) - - \[([^\]\n]+)\] "(?:([A-Z]+) ([^ ?"\n]*)[^"\n]*")?`)

// hits reads a combined log; whole are the lines that name a request alone.
func hits(t *testing.T, file string, whole bool) (all []hit) {
	t.Helper()
	packed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		m := combinedLine.FindStringSubmatch(line)
		if m == nil || whole && m[3] == "" {
			continue
		}
		at, err := time.Parse("02/Jan/2006:15:04:05 -0700", m[2])
		if err != nil {
			t.Fatal(err)
		}
		one := hit{at, map[string]string{"ip": m[1]}}
		if m[3] != "" {
			one.attributes["method"], one.attributes["path"] = m[3], m[4]
		}
		all = append(all, one)
	}
	slices.SortStableFunc(all, func(a, b hit) int { return a.at.Compare(b.at) })
	return all
}

// keyed gives each hit the key and the plan of a customer, as some clients have
// them, and writes them as a log in JSON.
func keyed(t *testing.T, from []hit) (file string, all []hit) {
	t.Helper()
	var b bytes.Buffer
	for _, one := range from {
		h := fnv.New32a()
		io.WriteString(h, one.attributes["ip"])
		more := maps.Clone(one.attributes)
		if sum := h.Sum32(); sum%5 > 0 {
			more["header.x-api-key"] = fmt.Sprintf("key-%d", sum%70)
			more["plan"] = []string{"free", "pro"}[sum%70%2]
		}
		line := maps.Clone(more)
		line["time"] = one.at.UTC().Format(time.RFC3339)
		if err := json.NewEncoder(&b).Encode(line); err != nil {
			t.Fatal(err)
		}
		all = append(all, hit{one.at, more})
	}
	file = filepath.Join(t.TempDir(), "access.jsonl")
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return file, all
}

// asked runs the planner and reads the JSON that it writes.
func asked(t *testing.T, to any, args ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	if status := main.Run(t.Context(), append([]string{"plan", "--json"}, args...), nil, &out, &errs); status != 0 {
		t.Fatalf("%v: exit %d: %s%s", args, status, &out, &errs)
	}
	if err := json.Unmarshal(out.Bytes(), to); err != nil {
		t.Fatal(err)
	}
}

// outOfShadow is a rules file that denies.
func outOfShadow(file string) string {
	return strings.ReplaceAll(file, "shadow: true", "shadow: false")
}

// The file that the planner proposes does in a server, over the two days of the
// log, what the report says: to all clients, to those that had no say, and to
// those that are exempt.
func TestPlanPasted(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	const log, hammer = "testdata/access.log.gz", "198.51.100.162"
	plain, whole := hits(t, log, false), hits(t, log, true)
	objects, keys := keyed(t, whole)
	for i, test := range []struct {
		log      string
		requests []hit
		key      string
		flags    []string
	}{
		{log, plain, "", nil},
		{log, plain, "", []string{"--deny-at-most", "1%"}},
		{log, plain, "", []string{"--deny-at-most", "1%", "--ignore-key", hammer}},
		{log, plain, "", []string{"--deny-at-most", "2%", "--exempt", hammer}},
		{log, plain, "", []string{"--deny-at-most", "5%", "--exempt", "2001:db8::/32"}},
		{log, plain, "", []string{"--deny-at-most", "1% of requests", "--margin", "0%"}},
		{log, plain, "", []string{"--deny-at-most", "5% of requests", "--exempt", hammer, "--margin", "0%"}},
		{log, whole, "path", []string{"--deny-at-most", "2%"}},
		{log, whole, "ip,path", []string{"--deny-at-most", "3% of requests"}},
		{log, whole, "ip,path", []string{"--deny-at-most", "2%", "--exempt", hammer + " /api/login"}},
		{log, whole, "ip,method", []string{"--deny-at-most", "2%"}},
		{objects, keys, "header.x-api-key", []string{"--deny-at-most", "5%"}},
		{objects, keys, "header.x-api-key", []string{"--deny-at-most", "2% of requests", "--match", "path=/**"}},
		{objects, keys, "header.x-api-key,path", []string{"--deny-at-most", "5%", "--exempt", "(none) /api/login"}},
	} {
		if race.On && i%3 != 0 {
			continue
		}
		args := append([]string{"--brief", test.log}, test.flags...)
		if test.key != "" {
			args = append(args, "--key", test.key)
		}
		var report struct {
			Choice struct {
				Rule  string
				Would struct {
					Requests, Denied int64
					ClientsDenied    int64 `json:"clients_denied"`
				}
			}
		}
		asked(t, &report, args...)
		want := report.Choice.Would
		synctest.Test(t, func(t *testing.T) {
			key := strings.Split(cmp.Or(test.key, "ip"), ",")
			denied, clients := serve(t, outOfShadow(report.Choice.Rule), test.requests, key)
			if denied != want.Denied || int64(len(clients)) != want.ClientsDenied || int64(len(test.requests)) != want.Requests {
				t.Errorf("%v: the server denied %d of %d requests, of %d clients; the report says %+v\n%s", args, denied, len(test.requests), len(clients), want, report.Choice.Rule)
			}
		})
	}
}

var standApart = regexp.MustCompile(`(?:^|[?.] )([^?]*) stand apart: is any`)

// A whole rules file that the planner proposes holds who asks for much more than others, and
// asks who that is. Programs that are answered well are denied nothing, in a server, by the
// file of whoever answers with --exempt.
func TestProposalPasted(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	plain := hits(t, "testdata/access.log.gz", true)
	objects, keys := keyed(t, plain)
	for log, requests := range map[string][]hit{"testdata/access.log.gz": plain, objects: keys} {
		args := []string{"--propose", filepath.Join(t.TempDir(), "asks.yaml"), log}
		var proposal struct{ File string }
		asked(t, &proposal, args...)
		apart := standApart.FindStringSubmatch(strings.Join(strings.Fields(strings.ReplaceAll(proposal.File, "\n#", " ")), " "))
		if apart == nil {
			t.Errorf("%s: nobody is asked for\n%s", log, proposal.File)
			continue
		}
		args[1] = filepath.Join(t.TempDir(), "answered.yaml")
		for name := range strings.SplitSeq(apart[1], ", ") {
			if name != "198.51.100.162" { // it guesses passwords
				args = append([]string{"--exempt", name}, args...)
			}
		}
		asked(t, &proposal, args...)
		file := outOfShadow(proposal.File)
		synctest.Test(t, func(t *testing.T) {
			_, clients := serve(t, file, requests, []string{"ip"})
			for _, partner := range []string{"192.0.2.161", "203.0.113.161", "198.51.100.161"} {
				if n := clients[partner]; n > 0 {
					t.Errorf("%s: %d requests of %s are denied\n%s", log, n, partner, file)
				}
			}
		})
	}
}

// serve asks the handler of a server about each request when its time has come.
// It returns how many were denied, in all and of each client by its key.
func serve(t *testing.T, file string, requests []hit, key []string) (denied int64, clients map[string]int64) {
	t.Helper()
	f, err := rules.Decode("stint.yaml", []byte(file))
	if err != nil {
		t.Fatalf("%v in\n%s", err, file)
	}
	store := memstore.New(memstore.Options{})
	defer store.Close()
	source, err := rules.Open(store, "", f, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	observer := observe.New(observe.Options{})
	defer observer.Close()
	h := server.NewHandler(server.Options{Source: source, Observer: observer, Admin: &server.Admin{Source: source, Observer: observer}, Open: true})
	start, begin := time.Now(), requests[0].at
	clients = make(map[string]int64)
	for _, one := range requests {
		time.Sleep(one.at.Sub(begin) - time.Since(start))
		body, err := json.Marshal(map[string]any{"attributes": one.attributes})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "/v1/check", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var answer struct{ Allowed *bool }
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Allowed == nil {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		if !*answer.Allowed {
			denied++
			who := ""
			for _, name := range key {
				who += one.attributes[name] + "\x00"
			}
			clients[strings.TrimSuffix(who, "\x00")]++
		}
	}
	return denied, clients
}
