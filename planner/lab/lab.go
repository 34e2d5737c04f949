// Package lab is the page on which people see how limits behave, and the
// simulator behind it.
//
// [New] is the whole lab: the page, what it needs, and POST v1/simulate.
// [Simulator] is that one endpoint, for a server that has its own page, and a
// [Planner] the endpoint that reads a log. Every decision is the engine's, made by a
// store on a virtual clock that begins at the Unix epoch; the page draws the
// answers and decides nothing.
//
// A request is bounded in every way ([MaxArrivals], [MaxLimits], [MaxBody],
// [MaxClients], [MaxColumns]), and given up after a few seconds. Nothing is
// kept between two requests.
package lab

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
)

// page holds what browsers are given: plain files, as they are.
//
//go:embed page
var page embed.FS

// Options is what a lab has beside its page. The zero value suits most programs.
type Options struct {
	// Aside is for a process that has more important things to do: one
	// simulation runs at a time, for a third of one processor's time. The
	// default value is false.
	Aside bool
	// Plan answers POST v1/plan: a log file in, what limits would have done to
	// it out. GET v1/lab says whether it is there, so that the page can offer
	// to drop a file on it. The default value is nil: it is not there.
	Plan *Planner
}

// policy is what the page may load: its own files and nothing else, and no
// script or style that stands in the page itself.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// mediaTypes are those of the page's files: what the machine thinks of them may
// differ, and browsers run no module of another type.
var mediaTypes = map[string]string{
	".js":  "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml",
}

// New returns the lab: the page at /, its files, GET /v1/lab and
// POST /v1/simulate. All its links are relative, so that it can stand under a
// prefix such as /lab/ that [http.StripPrefix] takes off. It authorises no
// requests: put [Guard] before it.
func New(o Options) http.Handler {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // the directory is embedded above
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	mux.Handle("GET /v1/lab", about(o))
	mux.Handle("POST /v1/simulate", Simulator(o.Aside))
	if o.Plan != nil {
		mux.Handle("POST /v1/plan", o.Plan)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache") // the next version of the binary has other files
		if media := mediaTypes[path.Ext(r.URL.Path)]; media != "" {
			h.Set("Content-Type", media)
		}
		mux.ServeHTTP(w, r)
	})
}

// about answers GET /v1/lab: what there is to choose from.
func about(o Options) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, &Choices{Kinds: Kinds(), Shapes: Shapes(), Plan: o.Plan != nil, MaxLog: o.Plan.most()})
	})
}
