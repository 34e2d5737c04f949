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

// BenchmarkWhileLoading asks a server for a thousand decisions a second, alone and
// while a million overrides are loaded into its PostgreSQL and it takes them over, all
// on this machine.
func BenchmarkWhileLoading(b *testing.B) {
	const n, alone = 1_000_000, 10 * time.Second
	url, dir := dbtest.Postgres(b).URL, b.TempDir()
	db, err := rulesdb.Open(url, rulesdb.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	if _, _, err := db.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	if _, err := db.Publish(b.Context(), 0, rulesdb.Revision{Name: "stint.yaml", Document: []byte("rules: [{name: api, key: [header.x-api-key], limits: [1000000/s]}]\n")}); err != nil {
		b.Fatal(err)
	}
	s := startStint(b, "serve", "--rules", url, "--rules-copy", "none", "--node", "n", "--http", "127.0.0.1:0")
	go func() {
		for s.lines.Scan() { // or it would wait for a reader
		}
	}()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	var ratios, before, during, loads []float64
	for k := 1; b.Loop(); k++ {
		file := filepath.Join(dir, "customers.csv")
		writeCustomers(b, file, n, 1_000_000+k)
		stop := make(chan struct{})
		time.AfterFunc(alone, func() { close(stop) })
		quiet := s.askSteadily(b, stop)
		stop = make(chan struct{})
		go func() {
			defer close(stop)
			began := time.Now()
			load := exec.Command(self, "override", "load", file, "--rules", url)
			load.Env = append(os.Environ(), "STINT_TEST_MAIN=1")
			if out, err := load.CombinedOutput(); err != nil {
				b.Errorf("%v: %s", err, out)
				return
			}
			loads = append(loads, time.Since(began).Seconds())
			for want := fmt.Sprintf(`"limit":%d,`, 1_000_000+k); ; time.Sleep(10 * time.Millisecond) {
				if _, answer := s.ask("/v1/peek", `{"attributes":{"header.x-api-key":"customer-999999"}}`, ""); strings.Contains(answer, want) {
					return
				}
			}
		}()
		busy := s.askSteadily(b, stop)
		before, during, ratios = append(before, quiet*1e3), append(during, busy*1e3), append(ratios, busy/quiet)
		b.Logf("p99 %.2f ms alone, %.2f ms while loading: %.2f ×; loaded in %.1f s", quiet*1e3, busy*1e3, busy/quiet, loads[len(loads)-1])
	}
	for name, all := range map[string][]float64{"ratio": ratios, "p99-alone-ms": before, "p99-loading-ms": during, "load-s": loads} {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], name)
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
