package rls

// Unmarshal reads a request whose keys and values are bytes.
var Unmarshal = unmarshal
