package observe

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/common/expfmt"
)

// mostScrapes is how many scrapes may run at once.
const mostScrapes = 4

// ServeMetrics serves the metrics in the format that a scraper accepts, and compresses them if it
// accepts gzip. Package promhttp would do the same, but brings encoders for zstd that the linker
// cannot leave out.
func (o *Observer) ServeMetrics(w http.ResponseWriter, r *http.Request) {
	select {
	case o.scrapes <- struct{}{}:
		defer func() { <-o.scrapes }()
	default:
		http.Error(w, "as many scrapes as may be are under way: "+strconv.Itoa(mostScrapes), http.StatusServiceUnavailable)
		return
	}
	families, err := o.Gather()
	if err != nil {
		http.Error(w, "metrics cannot be gathered: "+err.Error(), http.StatusInternalServerError)
		return
	}
	format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultAcceptedFormats()...)
	w.Header().Set("Content-Type", string(format))
	w.Header().Add("Vary", "Accept-Encoding")
	to := io.Writer(w)
	if takesGzip(r.Header) {
		w.Header().Set("Content-Encoding", "gzip")
		zip := gzip.NewWriter(w)
		defer zip.Close() // an error means that the scraper has gone
		to = zip
	}
	encoder := expfmt.NewEncoder(to, format)
	for _, family := range families {
		if encoder.Encode(family) != nil {
			return // the scraper has gone
		}
	}
}

// takesGzip reports whether Accept-Encoding accepts gzip.
func takesGzip(h http.Header) bool {
	for part := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q, ok := strings.CutPrefix(strings.ReplaceAll(weight, " ", ""), "q=")
			n, err := strconv.ParseFloat(q, 64)
			return !ok || err == nil && n > 0
		}
	}
	return false
}
