package request

// An Override is what a server reads from a header instead of from the request itself.
type Override uint8

// The overrides.
const (
	NoOverride     Override = iota
	OverrideMethod          // a method
	OverrideHost            // a host, or a list of hosts
	OverrideHosts           // the host= of Forwarded
	OverrideTarget          // a path with its query, or a URL
	OverridePrefix          // a prefix that is removed from the path
)

// overrides are the headers from which servers read another method, host or path, in the form of
// [net/http.Header], and the servers that read each.
var overrides = map[string]Override{
	// Rack and Rails; Symfony and Laravel for POST; Echo, and method-override of Express, where
	// they are used.
	"X-Http-Method-Override": OverrideMethod,
	"X-Http-Method":          OverrideMethod, // OData and SharePoint; method-override if configured
	"X-Method-Override":      OverrideMethod, // method-override if configured

	// Rack and Rails, Bottle, CherryPy; if configured: Django, Werkzeug and Flask, Waitress,
	// Symfony and Laravel, Express, Koa, Fastify, fiber, Spring, Jetty, ASP.NET, Plack.
	"X-Forwarded-Host":     OverrideHost,
	"X-Forwarded-Server":   OverrideHost,  // Jetty and Paste, if there is no X-Forwarded-Host
	"X-Original-Host":      OverrideHost,  // Yii; ASP.NET behind gateways of Azure
	"X-Host":               OverrideHost,  // some programs in PHP and Python
	"X-Http-Host-Override": OverrideHost,  // as X-Host
	"Forwarded":            OverrideHosts, // Rack 3, Symfony and Laravel, Waitress, Spring, Jetty

	// Programs that can run behind the URL rewriting of IIS: Symfony before 4.1.3, Zend and Laminas
	// before 2.8.1, WordPress.
	"X-Original-Url": OverrideTarget,
	"X-Rewrite-Url":  OverrideTarget, // as X-Original-Url; and Zend 1, Yii, CakePHP
	"Script-Name":    OverrideTarget, // gunicorn, as SCRIPT_NAME: the path is the rest

	// Spring, Symfony, Werkzeug, ASP.NET and gin put it before links; middleware of WSGI removes it
	// from the path.
	"X-Forwarded-Prefix": OverridePrefix,
	"X-Script-Name":      OverridePrefix, // middleware of WSGI
}

// OverrideOf returns what servers read from a header of this name.
func OverrideOf(header string) Override { return overrides[header] }

// initials are the first letters of the names in overrides.
var initials = func() (is [256]bool) {
	for name := range overrides {
		is[name[0]], is[name[0]|0x20] = true, true
	}
	return is
}()

// MayOverride reports whether a header may be one of the overrides in some spelling. It quickly
// rules out most headers.
func MayOverride(header string) bool { return header != "" && initials[header[0]] }
