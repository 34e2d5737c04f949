// Package lab is the page on which people see how limits behave, and the simulator behind it.
//
// [New] is the whole lab: the page, its files, and POST v1/simulate. [Simulator] is that endpoint
// alone, for a server with a page of its own, and a [Planner] is the endpoint that reads a log.
// Every decision is the engine's, made by a store on a virtual clock that begins at the Unix epoch;
// the page draws the answers and decides nothing.
//
// Every property of a request is bounded ([MaxArrivals], [MaxLimits], [MaxBody], [MaxClients],
// [MaxColumns]), and a simulation is stopped after a few seconds. Nothing is kept between two
// requests.
package lab

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
)

// page has the files for browsers, served unchanged.
//
//go:embed page
var page embed.FS

// Options are the optional features of a lab. The zero value suits most programs.
type Options struct {
	// Aside is for a process whose other work comes first: one simulation runs at a time, and takes
	// a third of one processor's time. The default value is false.
	Aside bool
	// Plan answers POST v1/plan: it takes a log file, and returns what limits would have done to
	// it. GET v1/lab says whether Plan is set, so that the page can offer to drop a file on it. The
	// default value is nil: there is no such endpoint.
	Plan *Planner
}

// policy lets the page load its own files and nothing else, and run no script or style that is in
// the page itself.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// mediaTypes are the types of the page's files. They are fixed here because the machine's own table
// may differ, and browsers run no module of a wrong type.
var mediaTypes = map[string]string{
	".js":  "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml",
}

// New returns the lab: the page at /, its files, GET /v1/lab and POST /v1/simulate. All links are
// relative, so that the lab can be served under a prefix such as /lab/ that [http.StripPrefix]
// removes. It does not authorise requests: put [Guard] before it.
func New(o Options) http.Handler {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // unreachable: the directory is embedded above
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
		h.Set("Cache-Control", "no-cache") // the next version of the binary may have other files
		if media := mediaTypes[path.Ext(r.URL.Path)]; media != "" {
			h.Set("Content-Type", media)
		}
		mux.ServeHTTP(w, r)
	})
}

// about answers GET /v1/lab with the choices that the page offers.
func about(o Options) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, &Choices{Kinds: Kinds(), Shapes: Shapes(), Plan: o.Plan != nil, MaxLog: o.Plan.most()})
	})
}
