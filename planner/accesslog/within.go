package accesslog

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// asked matches a request line, and fieldName a name of a field in JSON or logfmt.
var (
	asked     = regexp.MustCompile(`[A-Z]{3,} \S+ HTTP/[0-9]`)
	fieldName = regexp.MustCompile(`"([\w.@-]+)"\s*:|\b([\w.@-]+)=`)
)

// lastNames are the names of fields of requests, without the objects that they are in: by name, the index of the
// attribute in requestFields.
var lastNames = func() map[string]int {
	all := make(map[string]int)
	for i, attribute := range requestFields {
		for _, name := range names[attribute] {
			all[name[strings.LastIndexByte(name, '.')+1:]] = i
		}
	}
	return all
}()

// within reports whether a line that is no request has one in it, as where something has wrapped it: a request line,
// or the fields of at least two attributes of a request. What nginx writes of an error names the request too,
// and is none.
func within(line []byte) bool {
	line = bytes.ReplaceAll(line, []byte{'\\'}, nil)
	if asked.Match(line) && !bytes.Contains(line, []byte(", client: ")) {
		return true
	}
	found := 0
	for _, m := range fieldName.FindAllSubmatch(line, -1) {
		name := strings.ToLower(string(slices.Concat(m[1], m[2])))
		if i, ok := lastNames[name[strings.LastIndexByte(name, '.')+1:]]; ok {
			found |= 1 << i
		}
	}
	return found&(found-1) != 0
}
