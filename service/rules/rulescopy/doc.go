// Package rulescopy writes what a source of rules holds into a file, and reads
// it from there: the last good copy of a node, and what a worker keeps in a
// directory for other programs.
//
// The file is a line that names the format, then groups: a group is a begin, its
// overrides and plans, and an end. The first group is everything, the others are
// changes that were added to the file. A group without its end, as after a crash,
// does not count. Each record is a [Frame] with its length and a checksum.
package rulescopy
