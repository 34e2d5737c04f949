// Package moving holds the programs of docs/MOVING.md: how a limit is written
// with another library, and how with stint. Its tests send the same requests to
// both, and hold the document to them.
package moving
