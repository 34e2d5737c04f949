// Package resp is a server for Redis clients. It speaks their protocol, RESP 2 and 3, answers
// CL.THROTTLE as the module redis-cell does, and has commands of its own that decide attributes by
// the rules. docs/RESP.md has the commands.
//
// A [Server] serves connections until it is stopped. Each connection has one goroutine; commands
// that come together, in a pipeline, are answered together.
//
// # Bounds
//
// A command has at most [MaxArgs] arguments and [MaxCommand] bytes. A client that claims more, or
// does not follow the protocol, gets an error and is cut off: no length that a client sends is
// allocated before it is checked. A connection that is idle, or does not read its answers, is cut
// off too.
package resp
