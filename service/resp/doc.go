// Package resp is the server for Redis clients: it speaks their protocol, RESP 2
// and 3, and answers CL.THROTTLE as the module redis-cell does, and commands of
// its own that hold attributes to the rules. docs/RESP.md has the commands.
//
// A [Server] serves connections until it is stopped. Each connection has one
// goroutine; commands that come together, in a pipeline, are answered together.
//
// # Bounds
//
// A command has at most [MaxArgs] arguments and [MaxCommand] bytes. A client that
// claims more, or does not follow the protocol, gets an error and is cut off: no
// length that a client sends is ever allocated before it is checked. A connection
// that is idle, or does not take its answers, is cut off too.
package resp
