package usage

import "bytes"

// events reads the data of server-sent events, wherever the stream is cut. The data of an
// event is one document.
type events struct {
	state  lineState
	name   int  // how much of "data" the line has begun with
	lf     bool // a line feed belongs to the line end before
	filled bool // the line is not empty
	open   bool // the event has begun before the line
	done   int  // how much of "[DONE]" the data of the line is
	ended  bool // a line was that
}

type lineState uint8

const (
	inName  lineState = iota // at the beginning of a line, or in the name of its field
	inSpace                  // behind the colon
	inData
	inOther // a comment, or another field
)

const (
	dataField = "data"
	endOfData = "[DONE]" // by which OpenAI ends a stream
)

// write reads the next bytes of the stream.
func (e *events) write(p []byte, doc *document) {
	all, marks := p, marksAt{}
	for i := range marks {
		marks[i] = -1
	}
	for cr, lf := -1, -1; len(p) > 0; {
		if n := e.passOver(all, len(all)-len(p), doc.spec.ends, &marks); n > 0 {
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
		e.line(p[:n], doc)
		p, cr, lf = p[n:], cr-n, lf-n
	}
}

// marksAt are where each name, and each of otherMarks, comes next: a place that has been
// passed is looked for anew, so that all is looked through once.
type marksAt [MaxPointers + len(otherMarks)]int

// passOver returns the length of the events that begin at a place of p, as far as they are
// whole and have none of the names that are looked for: most of a stream is text.
func (e *events) passOver(p []byte, at int, names [][]byte, marks *marksAt) int {
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
	from := max(len(p)-mostEvent, 0)
	end := bytes.LastIndex(p[from:], endOfEvent)
	if end < 0 {
		return 0
	}
	return from + end + len(endOfEvent)
}

// mostEvent bounds where the end of an event is looked for.
const mostEvent = 4096

var endOfEvent = []byte("\n\n")

// otherMarks are what is not passed over beside names: what begins a letter of a name that
// is written otherwise, and the end of a stream. Other ends of lines do not matter: behind
// two line feeds an event is over, whatever came before.
var otherMarks = [...][]byte{[]byte(`\u00`), []byte("DONE]")}

// next returns where a byte comes next: at, unless that is over; the end if nowhere.
func next(p []byte, c byte, at int) int {
	if at >= 0 {
		return at
	}
	if at = bytes.IndexByte(p, c); at < 0 {
		return len(p)
	}
	return at
}

// line reads a part of a line.
func (e *events) line(p []byte, doc *document) {
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
	ended := e.ended || e.done == len(endOfData)
	switch {
	case !e.filled:
		doc.reset()
		*e = events{lf: cr, ended: ended}
		return
	case e.state == inData || e.state == inSpace || e.state == inName && e.name == len(dataField):
		doc.write([]byte{'\n'})
	}
	*e = events{lf: cr, open: true, ended: ended}
}
