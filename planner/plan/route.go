package plan

import (
	"slices"
	"strings"
)

// A route is a kind of paths that wants a limit of its own.
type route struct {
	name  string
	lasts []string // last segments that make a path one of it
	first []string // first segments that do
	files []string // extensions that do
}

// routes are tried in order; what is none of them is a page.
var routes = []route{
	{name: "health", lasts: []string{"healthz", "health", "livez", "readyz", "ping"}},
	{name: "login", lasts: []string{"login", "signin", "sign-in", "token", "password", "reset", "otp", "register", "signup", "session", "sessions"}},
	{name: "search", lasts: []string{"search", "suggest", "autocomplete"}},
	{name: "static", first: []string{"static", "assets", "img", "images", "fonts", "css", "js"}, files: []string{"css", "js", "png", "jpg", "jpeg", "gif", "svg", "ico", "webp", "woff2", "woff", "map"}},
	{name: "api", first: []string{"api", "v1", "v2", "v3", "graphql"}},
}

// pages is the name of the rest.
const pagesRoute = "pages"

// routeOf returns the route of a path, and the pattern of rules by which it is.
func routeOf(path string) (name, pattern string) {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	first, last := segments[0], segments[len(segments)-1]
	extension := ""
	if i := strings.LastIndexByte(last, '.'); i > 0 {
		extension = last[i+1:]
	}
	for _, r := range routes {
		switch {
		case slices.Contains(r.lasts, last):
			return r.name, "/**/" + last
		case slices.Contains(r.first, first):
			return r.name, "/" + first + "/**"
		case extension != "" && slices.Contains(r.files, extension):
			return r.name, "/**/*." + extension
		}
	}
	return pagesRoute, ""
}
