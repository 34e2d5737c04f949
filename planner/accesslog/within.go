package accesslog

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// repeated matches, in small letters, what daemons write for a line that came again and again, and for lines that they
// left out, with how many these are.
var repeated = regexp.MustCompile(`\brepeat\w*:? ([0-9]{1,9}) (?:more )?times\b|` +
	`\b(?:suppressed|lost|dropped|missed|discarded) ([0-9]{1,9}) (?:\w+ )?(?:messages|log entries|lines)\b|` +
	`\b([0-9]{1,9}) (?:\w+ )?(?:messages|lines) (?:\w+ )?(?:lost|suppressed|dropped|discarded)\b`)

// repeats reports whether rsyslog began a line so, which holds the line that came again.
func repeats(line []byte) bool {
	const begin = "message repeated "
	return len(line) > len(begin) && bytes.EqualFold(line[:len(begin)], []byte(begin))
}

// Repeated returns how many lines a line stands for, or 0 if it does not say.
func Repeated(line []byte) (all int64) {
	for _, m := range repeated.FindAllSubmatch(bytes.ToLower(line), -1) {
		n, _ := strconv.ParseInt(string(slices.Concat(m[1:]...)), 10, 64) // nine digits are always a number
		all += n
	}
	return all
}

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
// the fields of at least two attributes of a request, or how often a line was repeated. What nginx
// writes of an error names the request too, and is none.
func within(line []byte) bool {
	if Repeated(line) > 0 {
		return true
	}
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
