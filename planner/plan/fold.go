package plan

import "strings"

// longestWord is how long a path segment may be to count as a word and not as a name of one thing.
const longestWord = 24

// mostSegments is how many segments of a path are kept.
const mostSegments = 8

// foldPath writes * for path segments that name one thing: numbers, hexadecimal and mixed names,
// and long names.
func foldPath(path string) string {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(segments) > mostSegments {
		segments = append(segments[:mostSegments], "**")
	}
	for i, s := range segments {
		if single(s) {
			segments[i] = "*"
		}
	}
	return "/" + strings.Join(segments, "/")
}

// single reports whether a segment names one thing among many.
func single(s string) bool {
	digits, letters, hex := 0, 0, 0
	for _, c := range s {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F':
			hex++
		case c >= 'g' && c <= 'z' || c >= 'G' && c <= 'Z':
			letters++
		}
	}
	version := len(s) <= 3 && len(s) > 1 && s[0]|0x20 == 'v' // v1
	file := strings.LastIndexByte(s, '.') > 0 && digits < len(s)/2
	switch {
	case version || s == "":
		return false
	case digits > 0 && letters+hex == 0:
		return true
	case len(s) >= 8 && letters == 0 && digits > 0 && !file:
		return true
	case len(s) > longestWord && !file:
		return true
	}
	return digits*3 >= len(s) && !file && digits > 1
}
