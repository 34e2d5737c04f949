package page

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/stint-dev/stint/rulesdb"

	"github.com/stint-dev/stint/service/server"
)

const (
	// mostSessions bounds the sessions. A further one ends the least recently used.
	mostSessions = 256
	// sessionIdle is how long a session lasts without a request.
	sessionIdle = 24 * time.Hour
	// mostToken bounds the body of a sign-in.
	mostToken = 4 << 10
)

// sessions are the browsers that have signed in. A cookie holds a random name; the token of the
// session stays here and is checked at each request, so that a revoked token ends its sessions. All
// sessions end with the process.
type sessions struct {
	mu   sync.Mutex
	held map[[sha256.Size]byte]session // by the hash of the name
}

type session struct {
	token string
	used  time.Time
}

// cookie returns the name of the cookie. Cookies go to every port of a machine, so each address has
// its own name.
func cookie(r *http.Request) string {
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		return "stint_" + strconv.Itoa(addr.Port)
	}
	return "stint"
}

// token returns the token of a request's session; "" if it has none.
func (s *sessions) token(r *http.Request) string {
	c, err := r.Cookie(cookie(r))
	if err != nil {
		return ""
	}
	id, now := sha256.Sum256([]byte(c.Value)), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.held[id]
	if !ok || now.Sub(one.used) > sessionIdle {
		delete(s.held, id)
		return ""
	}
	one.used = now
	s.held[id] = one
	return one.token
}

// begin begins a session and returns its name.
func (s *sessions) begin(token string) string {
	name, now := rand.Text(), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = make(map[[sha256.Size]byte]session)
	}
	for len(s.held) >= mostSessions {
		var oldest [sha256.Size]byte
		at := now
		for id, one := range s.held {
			if !one.used.After(at) {
				oldest, at = id, one.used
			}
		}
		delete(s.held, oldest)
	}
	s.held[sha256.Sum256([]byte(name))] = session{token, now}
	return name
}

// end ends the session of a request.
func (s *sessions) end(r *http.Request) {
	if c, err := r.Cookie(cookie(r)); err == nil {
		s.mu.Lock()
		delete(s.held, sha256.Sum256([]byte(c.Value)))
		s.mu.Unlock()
	}
}

// A standing is the author and the role of a browser.
type standing struct {
	// Author is the person, and Role what they may do; role "" may do nothing.
	Author string       `json:"author"`
	Role   rulesdb.Role `json:"role"`
	// SignedIn reports whether they have signed in with a token.
	SignedIn bool `json:"signed_in"`
	// Rules reports whether they may see rules, and not only how clients stand.
	Rules bool `json:"rules"`
	// Publishes and Rehearses are as in [Options].
	Publishes bool `json:"publishes"`
	Rehearses bool `json:"rehearses"`
	// Attributes are the attributes that rules read.
	Attributes []string `json:"attributes"`
}

// session answers GET, POST and DELETE of session: who is signed in, signing in with {"token":
// "…"}, and signing out.
func (p *Page) session(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPost:
		if r = p.signIn(w, r); r == nil {
			return
		}
	case http.MethodDelete:
		p.sessions.end(r)
		setCookie(w, r, "", -1)
		r.Header.Del("Cookie")
	default:
		server.WrongMethod(w, "GET, HEAD, POST, DELETE")
		return
	}
	s, err := p.standing(r)
	if err != nil {
		server.WriteProblem(w, http.StatusServiceUnavailable, "", "whom the token belongs to cannot be asked just now")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(s) // a client that has gone needs no answer
}

// standing returns the standing of a request's sender.
func (p *Page) standing(r *http.Request) (standing, error) {
	s := standing{SignedIn: p.sessions.token(r) != "", Publishes: p.o.Publishes, Rehearses: p.o.Rehearses}
	author, role, err := p.may(r, "/v1/rules")
	if s.Rules = role != ""; err == nil && !s.Rules {
		author, role, err = p.may(r, "/v1/top")
	}
	if s.Author, s.Role = author, role; role != "" {
		s.Attributes = p.o.Service.Attributes()
	}
	return s, err
}

// signIn begins a session, and returns the request as a request of the session. If the token is
// wrong, it has answered, and returns nil.
func (p *Page) signIn(w http.ResponseWriter, r *http.Request) *http.Request {
	var asked struct {
		Token string `json:"token"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostToken)).Decode(&asked); err != nil || asked.Token == "" {
		server.WriteProblem(w, http.StatusBadRequest, "token", `want {"token": "…"}`)
		return nil
	}
	shown := r.Clone(r.Context())
	shown.Header.Del("Cookie")
	shown.Header.Set("Authorization", "Bearer "+asked.Token)
	s, err := p.standing(shown)
	switch {
	case err != nil:
		server.WriteProblem(w, http.StatusServiceUnavailable, "", "whom the token belongs to cannot be asked just now")
		return nil
	case s.Role == "":
		server.WrongToken(r)
		server.WriteProblem(w, http.StatusUnauthorized, "token", "this token is not known here: it may be mistyped, revoked or expired")
		return nil
	}
	p.o.Log.Info("page: signed in", "author", s.Author, "role", s.Role)
	p.sessions.end(r)
	name := p.sessions.begin(asked.Token)
	setCookie(w, r, name, 0)
	r.Header.Del("Cookie")
	r.AddCookie(&http.Cookie{Name: cookie(r), Value: name})
	return r
}

// setCookie sets the cookie until the browser closes; an age of -1 removes it. Without a path, the
// cookie is for the directory of the request and below, whatever prefix a proxy puts in front.
func setCookie(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{Name: cookie(r), Value: value, MaxAge: age, HttpOnly: true,
		Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
}
