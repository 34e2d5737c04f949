package httplimit

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/stint-dev/stint/internal/request"
	"github.com/stint-dev/stint/policy"
)

// overridden reports whether a header may make servers take another method, host or path than
// the request has, if rules look at that. name is as [http.Header] keeps it.
func (l *looked) overridden(r *http.Request, name string, lines []string) (attribute, reason string) {
	for _, line := range lines {
		if attribute = l.another(r, name, line); attribute != "" {
			return attribute, name + " has another one, which some servers take instead"
		}
	}
	return "", ""
}

// another returns the attribute for which a line of a header has another value.
func (l *looked) another(r *http.Request, name, line string) (attribute string) {
	switch override := request.OverrideOf(name); {
	case override == request.OverrideMethod && l.method && !strings.EqualFold(line, r.Method):
		return "method"
	case override == request.OverrideHost && l.host && hasOtherHost(line, r.Host):
		return "host"
	case override == request.OverrideHosts && l.host && forwardsOtherHost(line, r.Host):
		return "host"
	case override == request.OverrideTarget && l.path && isOtherTarget(line, r):
		return "path"
	case override == request.OverridePrefix && l.path && hasPrefixOf(line, r.URL):
		return "path"
	}
	return ""
}

// hasOtherHost reports whether a list has a host that is not the host of the request: some
// servers take the first and some the last.
func hasOtherHost(list, host string) bool {
	want, fault := policy.CleanHost(host)
	for one := range strings.SplitSeq(list, ",") {
		if name, err := policy.CleanHost(trimSpace(one)); err != nil || fault != nil || name != want {
			return true
		}
	}
	return false
}

var unquoted = strings.NewReplacer(`"`, "", `\`, "")

// forwardsOtherHost reports whether some server finds another host in a line of Forwarded,
// whether or not that server reads quotes.
func forwardsOtherHost(line, host string) bool {
	const name = "host"
	for rest := unquoted.Replace(line); len(rest) > len(name); rest = rest[1:] {
		if !strings.EqualFold(rest[:len(name)], name) {
			continue
		}
		if value, ok := strings.CutPrefix(strings.TrimLeft(rest[len(name):], " \t"), "="); ok {
			if i := strings.IndexAny(value, ",;"); i >= 0 {
				value = value[:i]
			}
			if hasOtherHost(value, host) {
				return true
			}
		}
	}
	return false
}

// isOtherTarget reports whether a path with its query, or a URL, differs from that of the
// request.
func isOtherTarget(target string, r *http.Request) bool {
	if scheme, rest, ok := strings.Cut(target, "://"); ok && (scheme == "http" || scheme == "https") {
		host, path, _ := strings.Cut(rest, "/")
		if hasOtherHost(host, r.Host) {
			return true
		}
		target = "/" + path
	}
	path, query, _ := strings.Cut(target, "?")
	return path != request.SentPath(r.URL) || query != r.URL.RawQuery
}

// hasPrefixOf reports whether a list has a prefix of the path, sent or decoded, which servers
// may cut off. A prefix that the path does not have is harmless: a proxy has cut it off
// already.
func hasPrefixOf(list string, u *url.URL) bool {
	sent := strings.TrimLeft(request.SentPath(u), "/")
	plain, _ := url.PathUnescape(sent) // "" if it cannot be decoded, which has no prefix
	for one := range strings.SplitSeq(list, ",") {
		prefix := strings.Trim(trimSpace(one), "/")
		if prefix != "" && (strings.HasPrefix(sent, prefix) || strings.HasPrefix(plain, prefix)) {
			return true
		}
	}
	return false
}
