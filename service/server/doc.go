// Package server is the HTTP interface of stint serve: it answers checks for
// programs in any language, and forward-auth for nginx, Traefik and Caddy.
//
// A [Handler] answers by the rules of a rules.Source; [Serve] runs it, or any
// other handler, on a listener with timeouts and bounds until its context ends; an
// [Admin] says whether the process is alive and ready, and shows its metrics.
//
// # Guarantees
//
// Every request is answered: a malformed one with a problem (application/problem+json)
// that names the field at fault, and it charges nothing. No client can inject a header or
// a log line, and no key, token or address is in a log, a metric or an error.
package server
