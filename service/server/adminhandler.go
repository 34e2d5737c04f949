package server

import (
	"net"
	"net/http"
	"strings"

	"github.com/stint-dev/stint/service/observe"
)

// AdminHandlerOptions are what a listener for operators has. Admin must be given.
type AdminHandlerOptions struct {
	Admin *Admin
	// Lab serves /lab/, without that prefix, and Simulate POST /v1/simulate. By
	// default there are no such paths.
	Lab, Simulate http.Handler
	// Page serves /ui/, without that prefix; it checks tokens itself. By default
	// there is no such path.
	Page http.Handler
	// Rules serves what operators ask and do, at the paths that it has; it checks
	// tokens itself. By default there are no such paths.
	Rules RulesHandler
	// Rehearse serves POST /v1/rehearse; it checks tokens itself. By default there
	// is no such path.
	Rehearse http.Handler
	// Usage serves GET /v1/usage; it checks tokens itself. By default there is no
	// such path.
	Usage http.Handler
	// Clients and Operators are the tokens for a listener that other machines reach:
	// /metrics then requires one of either file, if there are any, and the lab one
	// of Operators. The default value is none.
	Clients, Operators *Tokens
}

// A RulesHandler serves some paths below /v1/.
type RulesHandler interface {
	http.Handler
	// Has reports whether the handler serves a path.
	Has(path string) bool
}

// An adminHandler serves [Admin] with an index page and the lab.
type adminHandler struct {
	o       AdminHandlerOptions
	local   bool
	foreign *http.CrossOriginProtection
}

// AdminHeader is a header of every answer of a listener for operators: by it, commands tell
// the answer of a stint from that of another server.
const AdminHeader = "Stint-Admin"

// NewAdminHandler returns what a listener on addr serves to operators:
//
//	/              links to the other pages
//	/livez, /readyz, /metrics    see [Admin]
//	/ui/           the page of operators
//	/lab/          the lab
//	/v1/simulate   the simulator of the lab
//	/v1/rehearse   what other rules would have done to the last requests
//	/v1/inspect, /v1/top and others, see package rulesapi
//
// If only this machine reaches the listener, no token is required, and on TCP the
// Host is checked. On any other listener the lab needs Operators. A browser sends a
// token as the password, with any user name.
func NewAdminHandler(addr net.Addr, o AdminHandlerOptions) http.Handler {
	d := &adminHandler{o, Local(addr), http.NewCrossOriginProtection()}
	if !d.local && o.Operators == nil {
		d.o.Lab, d.o.Simulate = nil, nil
	}
	guarded := Guard(d, addr, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(AdminHeader, "1")
		guarded.ServeHTTP(w, r)
	})
}

// ServeHTTP implements [http.Handler].
func (d *adminHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := d.foreign.Check(r); err != nil {
		(&problem{status: http.StatusForbidden, detail: "sent by a page of another origin"}).write(w)
		return
	}
	r = noting(r, d.o.Admin.Observer, observe.Admin)
	switch path := r.URL.Path; {
	case path == "/":
		d.index(w, r)
	case path == "/metrics" && (d.o.Clients != nil || d.o.Operators != nil):
		if d.authorize(w, r, d.o.Clients, d.o.Operators) {
			d.o.Admin.ServeHTTP(w, r)
		}
	case path == "/livez", path == "/readyz", path == "/metrics":
		d.o.Admin.ServeHTTP(w, r)
	case d.o.Usage != nil && path == "/v1/usage":
		d.o.Usage.ServeHTTP(w, r)
	case d.o.Rules != nil && d.o.Rules.Has(path):
		d.o.Rules.ServeHTTP(w, r)
	case d.o.Rehearse != nil && path == "/v1/rehearse":
		d.o.Rehearse.ServeHTTP(w, r)
	case d.o.Page != nil && path == "/ui":
		redirect(w, "/ui/")
	case d.o.Page != nil && strings.HasPrefix(path, "/ui/"):
		http.StripPrefix("/ui", d.o.Page).ServeHTTP(w, r)
	case d.o.Lab != nil && path == "/lab":
		redirect(w, "/lab/")
	case d.o.Lab != nil && strings.HasPrefix(path, "/lab/"):
		if d.authorize(w, r, d.o.Operators) {
			http.StripPrefix("/lab", d.o.Lab).ServeHTTP(w, r)
		}
	case d.o.Simulate != nil && path == "/v1/simulate":
		d.simulate(w, r)
	case verbs[path] != nil:
		(&problem{status: http.StatusNotFound, detail: "no such path here: " + path + " is answered by stint serve, at its address for clients (--http); POST /v1/inspect shows operators how a client stands, and charges nothing"}).write(w)
	default:
		notFound(strings.Join(d.paths(), ", ")).write(w)
	}
}

func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusPermanentRedirect)
}

func (d *adminHandler) simulate(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodPost:
		WrongMethod(w, http.MethodPost)
	case d.authorize(w, r, d.o.Operators):
		d.o.Simulate.ServeHTTP(w, r)
	}
}

// authorize admits requests with one of the tokens, and all requests if only this machine
// reaches the listener. It answers a request that it does not admit.
func (d *adminHandler) authorize(w http.ResponseWriter, r *http.Request, known ...*Tokens) bool {
	if d.local {
		return true
	}
	shown := Shown(r)
	for _, tokens := range known {
		if tokens.Find(shown).Line > 0 {
			KnownToken(r)
			return true
		}
	}
	noteShown(r)
	w.Header()["Www-Authenticate"] = []string{"Bearer", `Basic realm="stint", charset="UTF-8"`}
	(&problem{status: http.StatusUnauthorized, detail: "want a token that is known here, as Authorization: Bearer TOKEN, or in a browser as the password"}).write(w)
	return false
}

// paths returns the paths that the index page links to.
func (d *adminHandler) paths() []string {
	paths := []string{"/livez", "/readyz", "/metrics"}
	if d.o.Page != nil {
		paths = append(paths, "/ui/")
	}
	if d.o.Lab != nil {
		paths = append(paths, "/lab/")
	}
	if d.o.Rules != nil {
		paths = append(paths, "/v1/openapi.json")
	}
	return paths
}

// abouts describe the paths on the index page.
var abouts = map[string]string{
	"/livez": "whether the process is alive", "/readyz": "whether to send it requests",
	"/metrics": "metrics for Prometheus", "/ui/": "what passes, who is denied and why, and what to do about it", "/lab/": "try limits, and see how they behave",
	"/v1/openapi.json": "the API of operators",
}

func (d *adminHandler) index(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		WrongMethod(w, "GET, HEAD")
		return
	}
	var b strings.Builder
	b.WriteString("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n" +
		"<meta name=\"color-scheme\" content=\"light dark\">\n<title>stint</title>\n<main>\n<h1>stint</h1>\n<ul>\n")
	for _, path := range d.paths() {
		b.WriteString("<li><a href=\"" + path[1:] + "\">" + path + "</a> " + abouts[path] + "</li>\n")
	}
	b.WriteString("</ul>\n</main>\n</html>\n")
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	_, _ = w.Write([]byte(b.String())) // a browser that has gone needs no answer
}
