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
	// mostSessions bounds sessions: one more ends the one that was used least
	// lately.
	mostSessions = 256
	// sessionIdle is for how long a session is good that nothing is asked by.
	sessionIdle = 24 * time.Hour
	// mostToken bounds the body by which one signs in.
	mostToken = 4 << 10
)

// sessions are the browsers that have signed in. A cookie holds a random name; the
// token that it stands for stays here, and is looked up for each request, so that
// one that is revoked is good for no session either. They end with the process.
type sessions struct {
	mu   sync.Mutex
	held map[[sha256.Size]byte]session // by the hash of the name
}

type session struct {
	token string
	used  time.Time
}

// cookie is the name of the cookie. Cookies go to every port of a machine, so each
// address has its own.
func cookie(r *http.Request) string {
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		return "stint_" + strconv.Itoa(addr.Port)
	}
	return "stint"
}

// token returns the token of the session that a request belongs to; "" if none.
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

// begin returns the name of a new session.
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
	// Author is who they are, Role what they may do; "" is nothing.
	Author string       `json:"author"`
	Role   rulesdb.Role `json:"role"`
	// SignedIn reports whether that is by a token.
	SignedIn bool `json:"signed_in"`
	// Rules reports whether they may see rules, and not only how clients stand.
	Rules bool `json:"rules"`
	// Publishes and Rehearses are as in [Options].
	Publishes bool `json:"publishes"`
	Rehearses bool `json:"rehearses"`
	// Attributes are what rules look at.
	Attributes []string `json:"attributes"`
}

// session answers GET, POST and DELETE of session: who one is, signing in by
// {"token": "…"}, and signing out.
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

// standing says who a request is of.
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

// signIn begins a session, and returns the request as one of it; nil if it has
// answered that it does not.
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

// setCookie sets the cookie for what is below the page, and for as long as the
// browser is open; -1 takes it away. Without a path it is good for the directory of
// the request, whatever prefix a proxy puts in front.
func setCookie(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{Name: cookie(r), Value: value, MaxAge: age, HttpOnly: true,
		Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
}
