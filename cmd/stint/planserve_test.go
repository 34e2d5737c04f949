package main_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/memstore"

	"github.com/stint-dev/stint/cmd/internal/service/observe"
	"github.com/stint-dev/stint/cmd/internal/service/rules"
	"github.com/stint-dev/stint/cmd/internal/service/server"
	main "github.com/stint-dev/stint/cmd/stint"
)

// A hit is a line of a combined log, read the slow way.
type hit struct {
	at time.Time
	ip string
}

func hits(t *testing.T, file string) (all []hit) {
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
	for _, m := range regexp.MustCompile(`(?m)^([^ \n]+) - - \[([^\]\n]+)\] "`).FindAllSubmatch(text, -1) {
		at, err := time.Parse("02/Jan/2006:15:04:05 -0700", string(m[2]))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, hit{at, string(m[1])})
	}
	slices.SortStableFunc(all, func(a, b hit) int { return a.at.Compare(b.at) })
	return all
}

// The file that the planner proposes does in a server, over the two days of the
// log, what the report says: to all clients, to those that had no say, and to
// those that are exempt.
func TestPlanPasted(t *testing.T) {
	const log, hammer = "testdata/access.log.gz", "198.51.100.162"
	requests := hits(t, log)
	for _, flags := range [][]string{
		nil, {"--deny-at-most", "1%"}, {"--deny-at-most", "1%", "--ignore-key", hammer},
		{"--deny-at-most", "2%", "--exempt", hammer}, {"--deny-at-most", "5%", "--exempt", "2001:db8::/32", "--ignore-top", "1"},
	} {
		var out, errs bytes.Buffer
		if status := main.Run(t.Context(), append([]string{"plan", "--brief", "--json", log}, flags...), nil, &out, &errs); status != 0 {
			t.Fatalf("%v: exit %d: %s", flags, status, &errs)
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
		if err := json.Unmarshal(out.Bytes(), &report); err != nil {
			t.Fatal(err)
		}
		want := report.Choice.Would
		synctest.Test(t, func(t *testing.T) {
			denied, clients := serve(t, strings.ReplaceAll(report.Choice.Rule, "shadow: true", "shadow: false"), requests)
			if denied != want.Denied || clients != want.ClientsDenied || int64(len(requests)) != want.Requests {
				t.Errorf("%v: the server denied %d of %d requests, of %d clients; the report says %+v\n%s", flags, denied, len(requests), clients, want, report.Choice.Rule)
			}
		})
	}
}

// serve asks the handler of a server about each request when its time has come.
func serve(t *testing.T, file string, requests []hit) (denied, clients int64) {
	t.Helper()
	f, err := rules.Decode("stint.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	store := memstore.New(memstore.Options{})
	defer store.Close()
	source, err := rules.Fixed(store, f, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	observer := observe.New(observe.Options{})
	defer observer.Close()
	h := server.NewHandler(server.Options{Source: source, Observer: observer, Admin: server.NewAdmin(source, observer), Open: true})
	start, begin := time.Now(), requests[0].at
	once := make(map[string]bool)
	for _, one := range requests {
		time.Sleep(one.at.Sub(begin) - time.Since(start))
		r := httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader(fmt.Sprintf(`{"attributes":{"ip":%q}}`, one.ip)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var answer struct{ Allowed *bool }
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Allowed == nil {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		if !*answer.Allowed {
			denied++
			once[one.ip] = true
		}
	}
	return denied, int64(len(once))
}
