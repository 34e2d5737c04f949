package benchmarks_test

import (
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/disk"
)

// Streams of a language model: each has so many events, one in each pace.
const streams, events, pace = 200, 50, 50 * time.Millisecond
const event = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":" word"}}]}` + "\n\n"

// stream answers with the events of a stream, once a proxy has surely ended the request: else
// a ReverseProxy may break off (go.dev/issue/40747).
func stream(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	for range events {
		time.Sleep(pace)
		_, _ = io.WriteString(w, event)
		_ = http.NewResponseController(w).Flush()
	}
}

// readAll asks for all streams at once, and wants each whole.
func (p process) readAll(b *testing.B, client *http.Client) time.Duration {
	all, before := sync.WaitGroup{}, p.used(b)
	for range streams {
		all.Go(func() {
			resp, err := client.Post("http://"+p.address+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m","stream":true,"messages":[]}`))
			if err != nil {
				b.Error(err)
				return
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != strings.Repeat(event, events) {
				b.Errorf("%v: %s", err, body)
			}
		})
	}
	all.Wait()
	return p.used(b) - before
}

// BenchmarkStreams is the processor time of proxies for each event of 200 streams at once, and
// how many times that of a bare ReverseProxy it is: under a rule of requests, one that reads
// usage, and one that takes more while a stream runs, here every 20 events.
func BenchmarkStreams(b *testing.B) {
	stint, _ := program(b)
	behind := "http://" + start(b, small("stream", "")).address
	names, proxies := []string{"bare"}, []process{start(b, small("proxy", behind))}
	for name, cost := range map[string]string{"requests": `1`, "usage": `{"usage":"openai","reserve":20}`, "cut": `{"usage":"openai","reserve":20,"cut":true}`} {
		rules := filepath.Join(b.TempDir(), "rules.json")
		text := `{"rules": [{"name": "all", "key": ["ip"], "limits": ["1000000000/s"], "cost": ` + cost + `}]}`
		disk.Write(b, rules, text)
		names, proxies = append(names, name), append(proxies, start(b, func(address string) *exec.Cmd {
			return exec.Command(stint, "proxy", "-c", rules, "--listen", address, "--upstream", behind)
		}))
	}
	client, used := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: streams}}, make([]time.Duration, len(proxies))
	for b.Loop() {
		for i, p := range proxies {
			used[i] += p.readAll(b, client)
		}
	}
	for i, name := range names {
		b.ReportMetric(float64(used[i].Nanoseconds())/float64(b.N*streams*events)/1000, name+"-cpu-µs/event")
		b.ReportMetric(float64(used[i])/float64(used[0]), name+"-ratio")
	}
}
