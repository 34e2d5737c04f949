package plan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/stint-dev/stint/policy"
)

// A route is a kind of paths that wants a limit of its own.
type route struct {
	name  string
	lasts []string // last segments that make a path one of it, with or without .php and the like
	first []string // first segments that do
	files []string // extensions that do
}

// routes are tried in order; what is none of them is a page.
var routes = []route{
	{name: "login", lasts: []string{"login", "log-in", "logon", "wp-login", "signin", "sign-in", "token", "password", "reset", "otp", "register", "signup", "session", "sessions"}},
	{name: "search", lasts: []string{"search", "suggest", "autocomplete"}},
	{name: "static", first: []string{"static", "assets", "img", "images", "fonts", "css", "js"}, files: []string{"css", "js", "png", "jpg", "jpeg", "gif", "svg", "ico", "webp", "woff2", "woff", "map"}},
	{name: "api", first: []string{"api", "v1", "v2", "v3", "graphql"}},
}

// programs are extensions of paths that are programs.
var programs = []string{"php", "asp", "aspx", "jsp", "do", "cgi"}

// pages is the name of the rest.
const pagesRoute = "pages"

// routeOf returns the route of a path, and the pattern of rules by which it is. A client
// may add to the end of a path what it likes, and many servers answer: so a pattern begins
// with what the log has at the beginning, and is the whole path where the end decides.
func routeOf(path string) (name, pattern string) {
	path, err := policy.CleanPath(path)
	if err != nil || strings.ContainsAny(path, "%*{}") || plainText(path) != path {
		return pagesRoute, "" // in a pattern, these characters would stand for others
	}
	segments := strings.Split(strings.Trim(path, "/"), "/")
	first, last := segments[0], segments[len(segments)-1]
	word, extension := last, ""
	if i := strings.LastIndexByte(last, '.'); i > 0 {
		if extension = last[i+1:]; slices.Contains(programs, extension) {
			word = last[:i]
		}
	}
	for _, r := range routes {
		switch {
		case slices.Contains(r.lasts, word):
			return r.name, path
		case slices.Contains(r.first, first):
			return r.name, "/" + first + "/**"
		case extension == "" || !slices.Contains(r.files, extension):
		case len(segments) == 1:
			return r.name, path
		default:
			return r.name, "/" + first + "/**/*." + extension
		}
	}
	return pagesRoute, ""
}

// A sighting is who asked for the paths of a pattern, and was answered.
type sighting struct {
	route    string
	requests int64
	by       map[string]struct{} // addresses, leastClients at most
}

// sightings are those of all patterns.
type sightings struct {
	all  map[string]*sighting
	made map[string]int // by address: the patterns of which it asked first
	full bool           // some were not counted
}

// mostMade is how many patterns one address alone may add.
const mostMade = 256

// add takes a request in, unless the server did not know the path.
func (s *sightings) add(route, pattern string, ip, status []byte) {
	if pattern == "" || slices.Contains(unknownPath, string(status)) {
		return
	}
	one := s.all[pattern]
	if one == nil {
		if s.made[string(ip)] == mostMade {
			return // what it made up keeps no other's out
		}
		if len(s.all) == mostSurveyed {
			s.full = true
			return
		}
		one = &sighting{route: route, by: make(map[string]struct{})}
		s.all[pattern] = one
		s.made[string(ip)]++
	}
	if one.requests++; len(one.by) < leastClients {
		one.by[string(ip)] = struct{}{}
	}
}

// unknownPath are the answers to paths that a server does not know.
var unknownPath = []string{"400", "404", "405", "410"}

// mostPatterns bounds those of one route.
const mostPatterns = 40

// patterns returns those of each route that many clients have asked for: one alone makes
// no rule. Of many, those with the most requests.
func (s *sightings) patterns() map[string][]string {
	found := make(map[string][]string)
	for pattern, one := range s.all {
		if len(one.by) >= leastClients {
			found[one.route] = append(found[one.route], pattern)
		}
	}
	for name, all := range found {
		slices.SortFunc(all, func(a, b string) int {
			return cmp.Or(cmp.Compare(s.all[b].requests, s.all[a].requests), strings.Compare(a, b))
		})
		found[name] = all[:min(len(all), mostPatterns)]
		slices.Sort(found[name])
	}
	return found
}
