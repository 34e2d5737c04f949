package plan

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
)

// A spool keeps the events of a pass in order, so that the logs are read but
// once, standard input included: in memory up to spoolMemory bytes, the rest in
// a file that has no name. An event takes about six bytes.
type spool struct {
	memory [][]byte
	chunk  []byte
	file   *os.File
	writer *bufio.Writer
	last   int64
	size   int64
	err    error
}

const spoolChunk = 1 << 20

// spoolMemory is not a constant, so that a test need not fill it.
var spoolMemory int64 = 256 << 20

func (s *spool) add(events []event) {
	for i := range events {
		e := &events[i]
		s.chunk = appendEvent(s.chunk, e, s.last)
		s.last = e.at
		if len(s.chunk) >= spoolChunk {
			s.put()
		}
	}
}

// appendEvent writes an event behind one of the moment last.
func appendEvent(to []byte, e *event, last int64) []byte {
	to = binary.AppendVarint(to, e.at-last)
	to = binary.AppendUvarint(to, uint64(e.id))
	return binary.AppendVarint(to, e.cost)
}

// An encoder writes events one after another.
type encoder struct {
	last int64
	text [3 * binary.MaxVarintLen64]byte
}

// encode returns the text of an event, until the next call.
func (c *encoder) encode(e *event) []byte {
	text := appendEvent(c.text[:0], e, c.last)
	c.last = e.at
	return text
}

// put moves the chunk at hand away.
func (s *spool) put() {
	if s.size += int64(len(s.chunk)); s.size <= spoolMemory {
		s.memory = append(s.memory, bytes.Clone(s.chunk))
	} else if s.err == nil {
		s.err = s.spill()
	}
	s.chunk = s.chunk[:0]
}

func (s *spool) spill() error {
	if s.file == nil {
		f, err := unnamed()
		if err != nil {
			return err
		}
		s.file, s.writer = f, bufio.NewWriterSize(f, spoolChunk)
	}
	_, err := s.writer.Write(s.chunk)
	return err
}

func (s *spool) close() {
	if f := s.file; f != nil {
		f.Close()
	}
}

// batch is how many events are given out at once.
const batch = 4096

// replay gives the events to the sinks again, but for those of clients that
// skip names. It may be called again and again.
func (s *spool) replay(ctx context.Context, skip []bool, sinks ...sink) error {
	readers := make([]io.Reader, 0, len(s.memory)+2)
	for _, m := range s.memory {
		readers = append(readers, bytes.NewReader(m))
	}
	if s.file != nil {
		if s.err = errors.Join(s.err, s.writer.Flush()); s.err != nil {
			return s.err
		}
		readers = append(readers, io.NewSectionReader(s.file, 0, 1<<62))
	}
	if s.err != nil {
		return s.err
	}
	in := bufio.NewReaderSize(io.MultiReader(append(readers, bytes.NewReader(s.chunk))...), 64<<10)
	events := make([]event, 0, batch)
	var e event
	for {
		var err error
		e, err = next(in, e.at)
		if err == nil && int(e.id) < len(skip) && skip[e.id] {
			continue
		}
		if err == nil {
			events = append(events, e)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(events) == batch || err != nil {
			for _, k := range sinks {
				k.add(events)
			}
			events = events[:0]
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		if err != nil {
			return nil
		}
	}
}

func next(in *bufio.Reader, last int64) (e event, err error) {
	step, err := binary.ReadVarint(in)
	if err != nil {
		return e, err
	}
	id, err := binary.ReadUvarint(in)
	if err != nil {
		return e, err
	}
	e.cost, err = binary.ReadVarint(in)
	e.at, e.id = last+step, uint32(id)
	return e, err
}
