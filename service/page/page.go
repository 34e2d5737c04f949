// Package page is the operators' page, at /ui/ on the address of --admin. It shows live what passes
// and what is denied, how one client stands and what can be done about it, and the rules with their
// revisions and a rehearsal before they are published.
//
// The browser gets static files. Everything that they show and do is answered by the API of
// operators: GET and POST v1/… below the page are passed on to it as the person who has signed in.
// The page itself has only two things: sessions, by which a browser uses a token without having it,
// and one stream of events, which is computed once for all who watch.
//
// Keys are hashes on the page, for every role. An operator may ask for a key, which the audit
// records.
//
// Memory is bounded: 256 sessions, 8 streams, and the counts of 10,000 rules in the last hour and
// the last day, 960 bytes each. Requests of clients cost nothing beside the counters that exist anyway.
package page

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/observe"
	"github.com/stint-dev/stint/service/operate"
	"github.com/stint-dev/stint/service/rulesapi"
	"github.com/stint-dev/stint/service/server"
)

// files are the files for browsers, served unchanged.
//
//go:embed files
var files embed.FS

// Options are the options of a Page. All are required except Publishes, Rehearses and Log.
type Options struct {
	// API answers requests below /v1/.
	API http.Handler
	// Who returns the author and the role of a request, by its token; role "" may do nothing.
	Who func(r *http.Request) (author string, role rulesdb.Role, err error)
	// Service returns summaries.
	Service *operate.Service
	// Observer has the counts.
	Observer *observe.Observer
	// Ready says why the process should get no requests; nil if it should.
	Ready func() error
	// Publishes says that rules can be published, since they are in a database. Rehearses says that
	// requests are recorded.
	Publishes, Rehearses bool
	// Log receives a sample of the sign-ins. The default discards them.
	Log *slog.Logger
}

// A Page answers requests below /ui/, without that prefix. It may be used from many goroutines at
// once.
type Page struct {
	o        Options
	files    http.Handler
	index    []byte // the page with its styles
	policy   string
	sessions sessions
	spans    []*span // the last hour and the last day
	live     live
}

// New returns a Page. Run makes its events.
func New(o Options) *Page {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Log = server.SampleLog(o.Log)
	sub, err := fs.Sub(files, "files")
	if err != nil {
		panic(err) // unreachable: the directory is embedded above
	}
	p := &Page{o: o, files: http.FileServerFS(sub), spans: []*span{newSpan(hourLong), newSpan(dayLong)}}
	p.index, p.policy = withStyles(file("index.html"), file("page.css"))
	p.live.changed = make(chan struct{})
	return p
}

// withStyles puts the styles into the page, so that it is drawn at once. It returns the page and
// its policy, which lets it load its own files and nothing else, and use only these styles within
// the page itself.
func withStyles(index, styles []byte) (whole []byte, policy string) {
	sum := sha256.Sum256(styles)
	before, after, _ := bytes.Cut(index, []byte(`<link rel="stylesheet" href="page.css">`))
	return slices.Concat(before, []byte("<style>"), styles, []byte("</style>"), after),
		"default-src 'none'; script-src 'self'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; img-src 'self'; connect-src 'self'; " +
			"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
}

// file returns a file of the page.
func file(name string) []byte {
	text, err := files.ReadFile("files/" + name)
	if err != nil {
		panic(err) // unreachable: the files are embedded above
	}
	return text
}

// mediaTypes are the types of the page's files. They are fixed here because the machine's own table
// may differ, and browsers run no module of a wrong type.
var mediaTypes = map[string]string{
	".js":  "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml",
}

// ServeHTTP answers.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", p.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	api := strings.HasPrefix(r.URL.Path, "/v1/")
	if (api || r.URL.Path == "/session" || r.URL.Path == "/live" || r.URL.Path == "/hour") && foreign(r) {
		server.WriteProblem(w, http.StatusForbidden, "", "asked by a page of another origin")
		return
	}
	switch {
	case api:
		p.pass(w, r)
	case r.URL.Path == "/session":
		p.session(w, r)
	case r.URL.Path == "/live":
		p.stream(w, r)
	case r.URL.Path == "/hour":
		p.ruleHour(w, r)
	default:
		h.Set("Cache-Control", "no-cache") // the next version of the binary may have other files
		if media := mediaTypes[path.Ext(r.URL.Path)]; media != "" {
			h.Set("Content-Type", media)
		}
		if r.URL.Path == "/" {
			http.ServeContent(w, r, "index.html", time.Time{}, bytes.NewReader(p.index))
			return
		}
		p.files.ServeHTTP(w, r)
	}
}

// foreign reports whether a browser says that a page of another origin sends the request. Another
// port of this machine is another origin but the same site, so browsers send it the cookies of this
// page.
func foreign(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "" && site != "same-origin" && site != "none" || http.NewCrossOriginProtection().Check(r) != nil
}

// pass lets the API answer the person who has signed in, or a guest.
func (p *Page) pass(w http.ResponseWriter, r *http.Request) {
	p.o.API.ServeHTTP(w, p.as(r).WithContext(rulesapi.Hashed(r.Context())))
}

// as returns a request with the token of its session and without the cookie, which nothing behind
// the page needs.
func (p *Page) as(r *http.Request) *http.Request {
	token := p.sessions.token(r)
	out := r.Clone(r.Context())
	out.Header.Del("Cookie")
	if token != "" {
		out.Header.Set("Authorization", "Bearer "+token)
	}
	return out
}

// may returns the author of a request and their role at a path of the API.
func (p *Page) may(r *http.Request, path string) (author string, role rulesdb.Role, err error) {
	out := p.as(r)
	out.URL.Path = path
	return p.o.Who(out)
}

// Run makes events until ctx is done, and then ends all streams.
func (p *Page) Run(ctx context.Context) { p.live.run(ctx, p) }
