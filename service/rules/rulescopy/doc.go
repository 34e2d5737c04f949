// Package rulescopy writes the contents of a source of rules to a file, and reads them from there.
// The file is the last good copy of a node, or what a worker keeps in a directory for other
// programs.
//
// It begins with a line that names the format, and a begin. All overrides and plans follow, and an
// end. Each record is a [Frame] with its length and a checksum. A change writes a new file beside
// the old one and then replaces it: a file is whole or does not exist.
package rulescopy
