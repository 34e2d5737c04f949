// Package envoyrules turns the configuration of envoyproxy/ratelimit, Envoy's
// reference rate limit service, into rules, and notes what changes its meaning.
// docs/ENVOY.md has the differences.
package envoyrules
