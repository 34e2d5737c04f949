package observe_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/stint-dev/stint/service/observe"
)

// TestScrapes asks for the metrics as scrapers do: as text, packed or not, and as
// Prometheus' own messages.
func TestScrapes(t *testing.T) {
	o := observe.New(observe.Options{})
	t.Cleanup(o.Close)
	for _, c := range []struct{ encoding, accept, packed, form string }{
		{"", "", "", "text/plain"},
		{"gzip", "", "gzip", "text/plain"},
		{"deflate, GZIP;q=0.5", "", "gzip", "text/plain"},
		{"gzip;q=0", "", "", "text/plain"},
		{"gzip; q=0.0, br", "", "", "text/plain"},
		{"zstd", "", "", "text/plain"},
		{"gzip", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", "gzip", "application/vnd.google.protobuf"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept-Encoding", c.encoding)
		r.Header.Set("Accept", c.accept)
		w := httptest.NewRecorder()
		o.ServeMetrics(w, r)
		form := w.Header().Get("Content-Type")
		if w.Code != http.StatusOK || w.Header().Get("Content-Encoding") != c.packed || !strings.HasPrefix(form, c.form) {
			t.Errorf("%+v: %d %v", c, w.Code, w.Header())
			continue
		}
		body := io.Reader(w.Body)
		if c.packed != "" {
			zip, err := gzip.NewReader(body)
			if err != nil {
				t.Fatal(err)
			}
			body = zip
		}
		families, err := 0, error(nil)
		decoder := expfmt.NewDecoder(body, expfmt.ResponseFormat(w.Header()))
		for ; err == nil; families++ {
			err = decoder.Decode(new(dto.MetricFamily))
		}
		if err != io.EOF {
			t.Errorf("%+v: %v", c, err)
		}
		if families < 10 {
			t.Errorf("%+v: %d families", c, families)
		}
	}
}
