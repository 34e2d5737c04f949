package usage

import (
	"bytes"
	"slices"
)

// events reads the data of server-sent events, wherever the stream is cut. The data of one event is
// one document.
type events struct {
	state  lineState
	name   int   // how many bytes of "data" the line has begun with
	lf     bool  // the line before ended in \r, so that a \n now belongs to its end
	filled bool  // the line is not empty
	open   bool  // the event has begun on an earlier line
	done   int   // how many bytes of "[DONE]" the data of the line has begun with
	ended  bool  // a line was "[DONE]"
	text   bool  // an earlier line of the event has data
	count  int64 // number of events with data
	other  int64 // bytes of lines that are neither comments nor fields, with one for the end of each
	line   int64 // bytes of the present line
	head   [6]byte
}

type lineState uint8

const (
	inName  lineState = iota // at the beginning of a line, or in the name of its field
	inSpace                  // after the colon
	inData
	inOther // a comment, or another field
)

const (
	dataField = "data"
	endOfData = "[DONE]" // ends a stream of OpenAI
)

func (e *events) write(p []byte, doc *document) {
	all, marks := p, marksAt{}
	for i := range marks {
		marks[i] = -1
	}
	for cr, lf := -1, -1; len(p) > 0; {
		if n := e.skip(all, len(all)-len(p), doc.spec.ends, &marks); n > 0 {
			p, cr, lf = p[n:], cr-n, lf-n
			continue
		}
		if e.lf {
			if e.lf = false; p[0] == '\n' {
				p, cr, lf = p[1:], cr-1, lf-1
				continue
			}
		}
		if cr, lf = next(p, '\r', cr), next(p, '\n', lf); cr == 0 || lf == 0 {
			e.endLine(p[0] == '\r', doc)
			p, cr, lf = p[1:], cr-1, lf-1
			continue
		}
		n := min(cr, lf)
		e.read(p[:n], doc)
		p, cr, lf = p[n:], cr-n, lf-n
	}
}

// marksAt has the next position of each of otherMarks and of each name. Only a position that has been
// passed is searched again, so that each byte is searched once for each mark.
type marksAt [MaxPointers + len(otherMarks)]int

// skip returns how many bytes of p, from a position on, are complete events that contain none of the
// names. Most of a stream is text, and to skip it is cheap.
func (e *events) skip(p []byte, at int, names [][]byte, marks *marksAt) int {
	if e.state != inName || e.name > 0 || e.filled || e.lf || e.open || len(names) == 0 {
		return 0
	}
	past := len(p)
	for i := range len(otherMarks) + len(names) {
		if marks[i] < at {
			mark := otherMarks[min(i, len(otherMarks)-1)]
			if i >= len(otherMarks) {
				mark = names[i-len(otherMarks)]
			}
			marks[i] = len(p)
			if n := bytes.Index(p[at:], mark); n >= 0 {
				marks[i] = at + n
			}
		}
		past = min(past, marks[i])
	}
	p = p[at:past]
	if bytes.IndexByte(p, '\r') >= 0 { // an event may end with \r too
		return 0
	}
	from := max(len(p)-mostEvent, 0)
	end := bytes.LastIndex(p[from:], endOfEvent)
	if end < 0 {
		return 0
	}
	n := from + end + len(endOfEvent)
	e.countIn(p[:n])
	return n
}

// countIn counts the events with data in p, which holds complete events.
func (e *events) countIn(p []byte) {
	for text := false; len(p) > 0; {
		end := bytes.IndexByte(p, '\n')
		if end == 0 && text {
			e.count++
		}
		if end > 0 && !aside(p[:end]) {
			e.other += int64(end) + 1
		}
		data, is := bytes.CutPrefix(p[:end], dataLine)
		text = end > 0 && (text || is && len(data) > 0 && string(data) != " ")
		p = p[end+1:]
	}
}

var dataLine = []byte(dataField + ":")

// isText reports whether the line has data so far that is not "[DONE]".
func (e *events) isText() bool { return e.done != 0 && e.done != len(endOfData) }

// mostEvent bounds how far back the end of an event is searched.
const mostEvent = 4096

var endOfEvent = []byte("\n\n")

// otherMarks also stop skipping: the beginning of an escape that may write a letter of a name, and
// the end of a stream. Other ends of lines do not matter, since after two line feeds an event is
// over, whatever came before.
var otherMarks = [...][]byte{[]byte(`\u00`), []byte("DONE]")}

// next returns the next position of a byte: at, unless that has been passed, or len(p) if there is
// none.
func next(p []byte, c byte, at int) int {
	if at >= 0 {
		return at
	}
	if at = bytes.IndexByte(p, c); at < 0 {
		return len(p)
	}
	return at
}

// aside reports whether a line is a comment or a field of events, by its beginning.
func aside(line []byte) bool {
	name, _, ok := bytes.Cut(line, []byte{':'})
	return ok && (len(name) == 0 || slices.Contains(fields, string(name)))
}

var fields = []string{dataField, "event", "id", "retry"}

// otherBytes returns the bytes of lines that are neither comments nor fields, up to now.
func (e *events) otherBytes() int64 {
	if aside(e.head[:min(e.line, int64(len(e.head)))]) {
		return e.other
	}
	return e.other + e.line
}

func (e *events) read(p []byte, doc *document) {
	if e.line < int64(len(e.head)) {
		copy(e.head[e.line:], p)
	}
	e.line += int64(len(p))
	e.filled = true
	for len(p) > 0 && e.state != inData {
		switch c := p[0]; {
		case e.state == inOther:
			return
		case e.state == inSpace:
			e.state = inData
			if c != ' ' {
				continue
			}
		case c == ':' && e.name == len(dataField):
			e.state = inSpace
		case e.name < len(dataField) && c == dataField[e.name]:
			e.name++
		default:
			e.state = inOther
		}
		p = p[1:]
	}
	for _, c := range p[:min(len(p), len(endOfData)+1)] {
		if e.done < 0 || e.done == len(endOfData) || c != endOfData[e.done] {
			e.done = -1
			break
		}
		e.done++
	}
	doc.write(p)
}

// endLine ends a line; an empty one ends the event.
func (e *events) endLine(cr bool, doc *document) {
	ended, text, count, other := e.ended || e.done == len(endOfData), e.text || e.isText(), e.count, e.otherBytes()
	if other > e.other {
		other++ // its end
	}
	switch {
	case !e.filled:
		doc.reset()
		if text {
			count++
		}
		*e = events{lf: cr, ended: ended, count: count, other: other}
		return
	case e.state == inData || e.state == inSpace || e.state == inName && e.name == len(dataField):
		doc.write([]byte{'\n'})
	}
	*e = events{lf: cr, open: true, ended: ended, text: text, count: count, other: other}
}
