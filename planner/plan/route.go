package plan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/stint-dev/stint/policy"
)

// A route is a kind of paths that has a limit of its own.
type route struct {
	name  string
	lasts []string // last segments that make a path one of the route, with or without an extension of programs
	first []string // first segments that do
	files []string // extensions that do
}

// routes are tried in order. A path of none of them is a page.
var routes = []route{
	{name: "login", lasts: []string{"login", "log-in", "logon", "wp-login", "signin", "sign-in", "token", "password", "reset", "otp", "register", "signup", "session", "sessions"}},
	{name: "search", lasts: []string{"search", "suggest", "autocomplete"}},
	{name: "static", first: []string{"static", "assets", "img", "images", "fonts", "css", "js"}, files: []string{"css", "js", "png", "jpg", "jpeg", "gif", "svg", "ico", "webp", "woff2", "woff", "map"}},
	{name: "api", first: []string{"api", "v1", "v2", "v3", "graphql"}},
}

// programs are the extensions of programs.
var programs = []string{"php", "asp", "aspx", "jsp", "do", "cgi"}

// pagesRoute is the route of all other paths.
const pagesRoute = "pages"

// routeOf returns the route of a path, and the pattern by which a rule matches it. Clients may
// append to a path what they like, and many servers answer. So a pattern matches beginnings of
// paths, and only where the end of a path decides it is the whole path.
func routeOf(path string) (name, pattern string) {
	path, err := policy.CleanPath(path)
	if err != nil || strings.ContainsAny(path, "%*{}") || plainText(path) != path {
		return pagesRoute, "" // a pattern would read these characters as wildcards
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

// A sighting is which clients asked for the paths of a pattern and were answered.
type sighting struct {
	route    string
	requests int64
	by       map[string]struct{} // at most leastClients addresses
}

// sightings are the sightings of all patterns.
type sightings struct {
	all  map[string]*sighting
	made map[string]int // by address: how many patterns it was the first to ask for
	full bool           // some patterns were not counted
}

// mostMade is how many patterns one address may add.
const mostMade = 256

// add adds a request, unless the server did not know the path.
func (s *sightings) add(route, pattern string, ip, status []byte) {
	if pattern == "" || slices.Contains(unknownPath, string(status)) {
		return
	}
	one := s.all[pattern]
	if one == nil {
		if s.made[string(ip)] == mostMade {
			return // so that made-up paths of one client keep out no others
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

// unknownPath are the statuses of paths that a server does not know.
var unknownPath = []string{"400", "404", "405", "410"}

// mostPatterns bounds the patterns of one route.
const mostPatterns = 40

// patterns returns the patterns of each route that many clients have asked for, since a single
// client should not make a rule. Where there are too many, those with the most requests are kept.
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
