package main_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
)

// BenchmarkWhileLoading asks a server for a thousand decisions a second: alone, while a
// million overrides are loaded into a PostgreSQL that no server reads, and while one that
// reads it is asked, until it has taken them over. All of it is on this machine: loading
// over alone is what the loader and PostgreSQL take of its processors, and taking over
// loading is what the server's own work costs.
func BenchmarkWhileLoading(b *testing.B) {
	const n, alone = 1_000_000, 10 * time.Second
	url, dir := dbtest.Postgres(b).URL, b.TempDir()
	db := dbtest.OpenMigrated(b, url, rulesdb.Options{})
	rules, file := filepath.Join(dir, "stint.yaml"), filepath.Join(dir, "customers.csv")
	document := []byte("rules: [{name: api, key: [header.x-api-key], limits: [1000000/s]}]\n")
	if err := os.WriteFile(rules, document, 0o600); err != nil {
		b.Fatal(err)
	}
	if _, err := db.Publish(b.Context(), 0, rulesdb.Revision{Name: "stint.yaml", Document: document}); err != nil {
		b.Fatal(err)
	}
	start := func(args ...string) *serving {
		return startStint(b, append(args, "--http", "127.0.0.1:0")...)
	}
	other := start("serve", "--config", rules)
	results := make(map[string][]float64)
	for k := 1_000_001; b.Loop(); k += 2 {
		round := make(map[string]float64)
		ask := func(s *serving, name string, meanwhile func()) {
			stop := make(chan struct{})
			go func() {
				defer close(stop)
				meanwhile()
			}()
			round[name] = s.askSteadily(b, stop) * 1e3
		}
		ask(other, "p99-alone-ms", func() { time.Sleep(alone) })
		writeCustomers(b, file, n, k)
		ask(other, "p99-loading-ms", func() { loadOverrides(b, file, url) })
		s := start("serve", "--rules", url, "--rules-copy", "none", "--node", "n")
		writeCustomers(b, file, n, k+1)
		var load, taking float64
		ask(s, "p99-taking-ms", func() {
			began := time.Now()
			loadOverrides(b, file, url)
			load = time.Since(began).Seconds()
			for want := fmt.Sprintf(`"limit":%d,`, k+1); !b.Failed(); time.Sleep(10 * time.Millisecond) {
				if _, answer := s.ask("/v1/peek", `{"attributes":{"header.x-api-key":"customer-999999"}}`, ""); strings.Contains(answer, want) {
					break
				}
			}
			taking = time.Since(began).Seconds() - load
		})
		_ = s.process.Process.Kill() // the next one is another
		round["load-s"], round["taking-s"] = load, taking
		round["loading/alone"] = round["p99-loading-ms"] / round["p99-alone-ms"]
		round["taking/loading"] = round["p99-taking-ms"] / round["p99-loading-ms"]
		b.Log(round)
		for name, one := range round {
			results[name] = append(results[name], one)
		}
	}
	for name, all := range results {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], name)
	}
}

// loadOverrides loads a file into a database, as another process.
func loadOverrides(b *testing.B, file, url string) {
	self, err := os.Executable()
	if err != nil {
		b.Error(err)
		return
	}
	load := exec.Command(self, "override", "load", file, "--rules", url)
	load.Env = append(os.Environ(), "STINT_TEST_MAIN=1")
	if out, err := load.CombinedOutput(); err != nil {
		b.Errorf("%v: %s", err, out)
	}
}

// writeCustomers writes overrides of so many customers.
func writeCustomers(b *testing.B, file string, n, perSecond int) {
	b.Helper()
	f, err := os.Create(file)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	fmt.Fprintln(w, "rule,key,limits")
	for i := range n {
		fmt.Fprintf(w, "api,customer-%d,%d/s\n", i, perSecond)
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
}

// askSteadily asks for a decision each millisecond until stop is closed, whether or not
// others are answered, and returns within what 99 in a hundred were, in seconds.
func (s *serving) askSteadily(b *testing.B, stop <-chan struct{}) float64 {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	var took []float64
	var asked sync.WaitGroup
	begin := time.Now()
	for i := 0; ; i++ {
		due := begin.Add(time.Duration(i) * time.Millisecond)
		time.Sleep(time.Until(due))
		select {
		case <-stop:
			asked.Wait()
			slices.Sort(took)
			return took[len(took)*99/100]
		default:
		}
		asked.Go(func() {
			resp, err := client.Post("http://"+s.address+"/v1/check", "application/json", strings.NewReader(fmt.Sprintf(`{"attributes":{"header.x-api-key":"customer-%d"}}`, i)))
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			mu.Lock()
			took = append(took, time.Since(due).Seconds())
			mu.Unlock()
		})
	}
}
