// Package rulescopy writes what a source of rules holds into a file, and reads
// it from there: the last good copy of a node, and what a worker keeps in a
// directory for other programs.
//
// The file is a line that names the format, a begin, all overrides and plans, and an
// end. Each record is a [Frame] with its length and a checksum. A change writes the
// file anew, beside the old one, and takes its place: a file is whole or not there.
package rulescopy
