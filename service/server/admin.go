package server

import (
	"net/http"
	"sync/atomic"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/rules"
)

// An Admin answers probes and serves metrics:
//
//	/livez        200 as long as it answers at all
//	/readyz       200, or 503 with the reason to send it no requests
//	/healthcheck  as in envoyproxy/ratelimit: 200 until it stops, with rules or without
//	/metrics      metrics, as Prometheus reads them
//
// Source and Observer must be given. It may be used from many goroutines at once.
type Admin struct {
	Source   *rules.Source
	Observer *observe.Observer
	stopping atomic.Bool
}

// Stop makes /readyz say 503 from now on; see ServeOptions.OnStop.
func (a *Admin) Stop() { a.stopping.Store(true) }

// ServeHTTP implements [http.Handler].
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/livez", "/readyz", "/healthcheck", "/metrics":
	default:
		notFound("/livez, /readyz, /healthcheck or /metrics").write(w)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		WrongMethod(w, "GET, HEAD")
		return
	}
	switch r.URL.Path {
	case "/livez":
		state(w, http.StatusOK, "ok")
	case "/readyz":
		a.ready(w, a.Source.Ready())
	case "/healthcheck":
		a.ready(w, nil)
	default:
		a.Observer.ServeMetrics(w, r)
	}
}

func (a *Admin) ready(w http.ResponseWriter, err error) {
	switch {
	case a.stopping.Load():
		state(w, http.StatusServiceUnavailable, "stopping")
	case err != nil:
		state(w, http.StatusServiceUnavailable, err.Error())
	default:
		state(w, http.StatusOK, "ok")
	}
}

func state(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // a prober that has gone needs no answer
}
