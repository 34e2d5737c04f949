package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// A File is an open log. It may be used from one goroutine at a time, except for [File.Position].
type File struct {
	// Name is the name under which it was opened.
	Name string
	// Size is the size of the file in bytes, compressed if it is; 0 if it is not known.
	Size int64
	// NULs is how many NUL bytes precede the first line.
	NULs int64

	raw     *counted
	text    io.Reader
	close   []func()
	latest  time.Time
	rest    []byte // read, and not yet returned by Next
	marked  bool   // lines that begin with # name the columns
	heading []byte // the last line #Fields: that Next returned, with its newline
	head    []byte // the beginning of the log, for Detect
	err     error  // why reading ended
}

// headLength is how many bytes Detect looks at.
const headLength = 64 << 10

// counted counts the bytes read, so that other goroutines can see the progress.
type counted struct {
	r io.Reader
	n atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// Open opens a log. Only the bytes that it has now are read, so that a file which grows meanwhile
// gives the same lines each time.
func Open(name string) (*File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = &fs.PathError{Op: "read", Path: name, Err: errors.New("is a directory: name its files")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	var r io.Reader = f
	size := int64(0)
	if info.Mode().IsRegular() {
		size = info.Size()
		r = io.LimitReader(f, size)
	}
	l, err := From(name, r, info.ModTime())
	if err != nil {
		f.Close()
		return nil, err
	}
	l.Size = size
	l.close = append(l.close, func() { f.Close() })
	return l, nil
}

// From makes a log of a reader. Latest is about the latest time in it, which tells the year of
// times without one; zero means now.
func From(name string, r io.Reader, latest time.Time) (*File, error) {
	f := &File{Name: name, raw: &counted{r: r}, latest: latest}
	magic := make([]byte, 4)
	n, failed := io.ReadFull(f.raw, magic)
	f.text = io.MultiReader(bytes.NewReader(magic[:n]), f.raw)
	if err := f.decompress(magic[:n]); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f.begin()
	if failed != nil && !ended(failed) {
		f.err = failed
	}
	f.rest = bytes.TrimPrefix(f.head, []byte("\ufeff"))
	f.marked = bytes.HasPrefix(f.rest, []byte("#"))
	return f, nil
}

// mostNULs bounds how many NUL bytes are skipped, since a few compressed bytes may unpack to any
// number.
const mostNULs = 1 << 30

// begin reads the beginning. It skips NUL bytes, which a log has that was truncated while its
// server went on writing at the old position.
func (f *File) begin() {
	f.head = make([]byte, headLength)
	n := 0
	for f.err == nil && n < headLength {
		m, err := io.ReadFull(f.text, f.head[n:])
		f.head = f.head[:n+m]
		if n += m; n > 0 && f.head[0] == 0 {
			text := bytes.TrimLeft(f.head, "\x00")
			f.NULs += int64(n - len(text))
			n = copy(f.head, text)
			if f.NULs > mostNULs {
				f.err = fmt.Errorf("more than %d NUL bytes before the first line: this is no log", mostNULs)
			}
		}
		if f.head = f.head[:headLength]; err != nil && f.err == nil {
			f.err = io.EOF
			if !errors.Is(err, io.EOF) {
				f.end(err)
			}
		}
	}
	f.head = f.head[:n]
	f.beyondFirst()
}

// beyondFirst reads more if the first line is longer than headLength: it may be the one odd line of
// a good log.
func (f *File) beyondFirst() {
	if len(f.head) < headLength || bytes.IndexByte(f.head, '\n') >= 0 {
		return
	}
	for first := true; f.err == nil && len(f.head) < longestLine && first; {
		first = bytes.IndexByte(f.head, '\n') < 0 // otherwise head becomes what follows the first line
		more := make([]byte, max(headLength, len(f.head)/2))
		n, err := io.ReadFull(f.text, more)
		if f.head = append(f.head, more[:n]...); err != nil {
			f.end(err)
		}
	}
}

func (f *File) decompress(magic []byte) error {
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(f.text)
		if err != nil {
			return err
		}
		f.text = z
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(f.text, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<30))
		if err != nil {
			return err
		}
		f.text = z
		f.close = append(f.close, z.Close)
	default:
		f.text = &uncompressed{f.text}
	}
	return nil
}

// uncompressed marks a reader of text that is not compressed, so that any end is its end.
type uncompressed struct{ io.Reader }

func ended(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// end records why reading ended. ReadFull returns the same error for uncompressed text that has
// ended and for compressed text of which some is missing, so the kind of reader decides.
func (f *File) end(err error) {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		if _, ok := f.text.(*uncompressed); ok {
			err = io.EOF
		} else if _, again := f.text.Read(make([]byte, 1)); errors.Is(again, io.EOF) && !errors.Is(again, io.ErrUnexpectedEOF) {
			err = io.EOF
		}
	}
	f.err = err
}

// Detect recognises the format of the log from its beginning.
func (f *File) Detect(o Options) (Format, error) {
	if o.Latest.IsZero() {
		o.Latest = f.latest
	}
	sample := bytes.TrimPrefix(f.head, []byte("\ufeff"))
	format, err := Detect(sample, o)
	if err != nil {
		return Format{}, fmt.Errorf("%s: %w", f.Name, err)
	}
	return format, nil
}

// Head returns the beginning of the log, by which a log can be identified. The caller must not
// change it.
func (f *File) Head() []byte { return f.head }

// Position returns how many bytes of the file have been read, compressed if it is. It may be called
// from any goroutine.
func (f *File) Position() int64 { return f.raw.n.Load() }

// Close closes the file.
func (f *File) Close() {
	for _, c := range f.close {
		c()
	}
	f.close = nil
}

// blockLength is how much is read at a time: a block stays in a core's cache until it has been
// parsed. A line longer than longestLine is cut.
const (
	blockLength = 256 << 10
	longestLine = 16 << 20
)

// Next returns the next block of whole lines, in buf if it is large enough. The error is io.EOF at
// the end; any other error says why the log cannot be read further. The last line may lack its
// newline. Where lines name the columns, as in the W3C format, each block begins with the line of
// names that holds for it, so that blocks can be parsed independently.
func (f *File) Next(buf []byte) ([]byte, error) {
	if !f.marked || f.err != nil && len(f.rest) == 0 {
		return f.next(buf)
	}
	f.rest = append(bytes.Clone(f.heading), f.rest...)
	block, err := f.next(buf)
	at := bytes.LastIndex(block, append([]byte{'\n'}, w3cFields...)) + 1
	if at > 0 || bytes.HasPrefix(block, w3cFields) {
		if end := bytes.IndexByte(block[at:], '\n'); end >= 0 {
			f.heading = bytes.Clone(block[at : at+end+1])
		}
	}
	return block, err
}

func (f *File) next(buf []byte) ([]byte, error) {
	if cap(buf) < blockLength {
		buf = make([]byte, blockLength)
	}
	buf = buf[:cap(buf)]
	n := copy(buf, f.rest)
	f.rest = f.rest[n:]
	for {
		for n < len(buf) && f.err == nil && len(f.rest) == 0 {
			m, err := io.ReadFull(f.text, buf[n:])
			if n += m; err != nil {
				f.end(err)
			}
		}
		if f.err != nil && len(f.rest) == 0 {
			if n == 0 {
				return nil, f.err
			}
			return buf[:n], nil
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			f.rest = append(bytes.Clone(buf[i+1:n]), f.rest...)
			return buf[:i+1], nil
		}
		if n >= longestLine {
			return buf[:n], nil
		}
		buf = append(buf, make([]byte, len(buf))...)
		m := copy(buf[n:], f.rest)
		n, f.rest = n+m, f.rest[m:]
	}
}

// Times returns the times of the first and the last readable line of the sample that Detect looks
// at, or 0 if none is readable. The parser must have been made for that number of attributes.
func (f *File) Times(p Parser, attributes int) (first, last int64) {
	r := Record{Values: make([][]byte, attributes)}
	for text := bytes.TrimPrefix(f.head, []byte("\ufeff")); len(text) > 0; {
		var line []byte
		line, text = Line(text)
		if p.Parse(line, &r) != nil {
			continue
		}
		if last = r.At; first == 0 {
			first = r.At
		}
	}
	return first, last
}

// Has reports whether most lines of the sample that Detect looks at have an attribute.
func (f *File) Has(format Format, attribute string) bool {
	p := format.With([]string{attribute}).Parser()
	r := Record{Values: make([][]byte, 1)}
	good, there := 0, 0
	for text := bytes.TrimPrefix(f.head, []byte("\ufeff")); len(text) > 0; {
		var line []byte
		line, text = Line(text)
		if p.Parse(line, &r) != nil {
			continue
		}
		if good++; r.Values[0] != nil {
			there++
		}
	}
	return there*2 > good
}

// Written returns when the file was last written, zero if that is not known.
func (f *File) Written() time.Time { return f.latest }
