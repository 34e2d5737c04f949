// Package envoyrules turns the configuration of envoyproxy/ratelimit, Envoy's
// reference rate limit service, into rules, and says what then means something
// else. docs/ENVOY.md has the differences.
package envoyrules
