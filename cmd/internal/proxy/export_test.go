package proxy

// Redact is for the tests, which are outside of the package.
var Redact = redact
