package resp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

const (
	// MaxArgs is the most arguments of a command, its name included.
	MaxArgs = 256
	// MaxCommand is the most bytes of a command as it is sent.
	MaxCommand = 64 << 10
	// maxSkipped is the most bytes of a too long command that are skipped.
	maxSkipped = 16 << 20
	// maxHead is the most bytes of a length and its type byte.
	maxHead = 32
)

// errTooLong is the error of a command longer than MaxArgs or MaxCommand. It was skipped and the
// connection goes on, since other callers wait for answers on it.
var errTooLong = fmt.Errorf("a command has at most %d arguments and %d bytes", MaxArgs, MaxCommand)

// A ProtocolError says that a client has violated the protocol. Nothing that follows on the
// connection can be understood.
type ProtocolError struct{ reason string }

// Error says what is wrong.
func (e *ProtocolError) Error() string { return "Protocol error: " + e.reason }

func malformed(format string, args ...any) error {
	return &ProtocolError{fmt.Sprintf(format, args...)}
}

// errMore says that the command has not arrived completely.
var errMore = errors.New("resp: more bytes are needed")

// A Reader reads commands: arrays of strings or, as people type them, lines of words. It belongs to
// one goroutine.
type Reader struct {
	from       io.Reader
	buf        []byte
	begin, end int // bounds of the data that was read and not returned
	args       [][]byte
	skipping   bool // skips the rest of a command that is too long
}

// NewReader returns a Reader.
func NewReader(from io.Reader) *Reader {
	return &Reader{from: from, buf: make([]byte, 4<<10)}
}

// Buffered reports whether bytes of a further command have been read.
func (r *Reader) Buffered() bool { return r.begin < r.end }

// Begun reports whether some of a command has been read.
func (r *Reader) Begun() bool { return r.skipping || r.Buffered() }

// Next returns the next command. Its arguments are valid until the next call. The error is
// errTooLong, after which the next command can be read, a [*ProtocolError], io.EOF between
// commands, io.ErrUnexpectedEOF within one, or the connection's.
func (r *Reader) Next() ([][]byte, error) {
	for {
		args, used, err := parse(r.args[:0], r.buf[r.begin:r.end])
		r.args = args
		switch {
		case err == nil:
			r.begin += used
			if len(args) > 0 {
				return args, nil
			}
		case errors.Is(err, errMore):
			err = r.fill()
		}
		if errors.Is(err, errTooLong) {
			err = r.skip()
		}
		if err != nil {
			return nil, err
		}
	}
}

// fill reads more data behind the buffered data.
func (r *Reader) fill() error {
	have := r.end - r.begin
	if have >= MaxCommand {
		return errTooLong // parse has found no end of a line
	}
	switch {
	case have == 0:
		r.begin, r.end = 0, 0
	case r.end == len(r.buf) && r.begin > 0:
		copy(r.buf, r.buf[r.begin:r.end])
		r.begin, r.end = 0, have
	case r.end == len(r.buf):
		r.buf = append(r.buf, make([]byte, min(len(r.buf), MaxCommand-len(r.buf)))...)
	}
	n, err := r.from.Read(r.buf[r.end:])
	r.end += n
	switch {
	case n > 0:
		return nil
	case errors.Is(err, io.EOF) && have > 0:
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	}
	return io.ErrNoProgress
}

// skip skips an array that is too long.
func (r *Reader) skip() error {
	r.skipping = true
	defer func() { r.skipping = false }()
	count, at, err := length(r.buf[r.begin:r.end], 0, "array")
	if err != nil {
		return err
	}
	r.begin += at
	left := maxSkipped
	for count > 0 {
		size, at, err := stringHead(r.buf[r.begin:r.end], 0)
		if errors.Is(err, errMore) {
			err = r.fill()
		} else if err == nil {
			r.begin, count = r.begin+at, count-1
			size += len("\r\n")
			if left -= at + size; left < 0 {
				return malformed("a command of more than %d bytes", maxSkipped)
			}
			err = r.drop(size)
		}
		if err != nil {
			return err
		}
	}
	return errTooLong
}

// drop skips n bytes.
func (r *Reader) drop(n int) error {
	for {
		here := min(n, r.end-r.begin)
		r.begin += here
		if n -= here; n == 0 {
			return nil
		}
		if err := r.fill(); err != nil {
			return err
		}
	}
}

// parse parses one command at the front of b. It returns its arguments, which are slices of b, and
// how many bytes it took. An empty command has no arguments, and is ignored.
func parse(args [][]byte, b []byte) ([][]byte, int, error) {
	if len(b) == 0 {
		return args, 0, errMore
	}
	if b[0] != '*' {
		return parseLine(args, b)
	}
	count, at, err := length(b, 0, "array")
	if err != nil {
		return args, 0, err
	}
	switch {
	case count > maxSkipped/len("$0\r\n\r\n"):
		return args, 0, malformed("%d arguments, at most %d", count, MaxArgs)
	case count > MaxArgs:
		return args, 0, errTooLong
	}
	for range count {
		size, next, err := stringHead(b, at)
		if err != nil {
			return args, 0, err
		}
		if next+size+len("\r\n") > MaxCommand {
			return args, 0, errTooLong
		}
		if len(b) < next+size+2 {
			return args, 0, errMore
		}
		if b[next+size] != '\r' || b[next+size+1] != '\n' {
			return args, 0, malformed("a string that is longer than its length says")
		}
		args = append(args, b[next:next+size])
		at = next + size + 2
	}
	return args, at, nil
}

// stringHead parses the head of a string: it returns its length, and the index of its first byte.
func stringHead(b []byte, at int) (size, next int, err error) {
	if at == len(b) {
		return 0, 0, errMore
	}
	if b[at] != '$' {
		return 0, 0, malformed("expected '$', got %q", b[at])
	}
	if size, next, err = length(b, at, "string"); size < 0 {
		err = malformed("a string of %d bytes", size)
	}
	return size, next, err
}

// length parses a type byte, a whole number and the end of a line, and returns the index after it.
// A negative length of an array means an empty command.
func length(b []byte, at int, of string) (n, next int, err error) {
	i := at + 1
	negative := i < len(b) && b[i] == '-'
	if negative {
		i++
	}
	first := i
	for ; i < len(b) && b[i] != '\r'; i++ {
		if b[i] < '0' || b[i] > '9' || i-first > 9 {
			return 0, 0, malformed("invalid length of %s", of)
		}
		n = n*10 + int(b[i]-'0')
	}
	if i-at > maxHead {
		return 0, 0, malformed("invalid length of %s", of)
	}
	if i+1 >= len(b) {
		return 0, 0, errMore
	}
	if b[i+1] != '\n' || i == first {
		return 0, 0, malformed("invalid length of %s", of)
	}
	if negative {
		n = -n
	}
	return n, i + 2, nil
}

// parseLine parses a line of words. It refuses quotes, and bytes that Redis reads as a blank or the
// end, so that a key is the same as for Redis; programs send arrays.
func parseLine(args [][]byte, b []byte) ([][]byte, int, error) {
	end := bytes.IndexByte(b, '\n')
	switch {
	case end < 0 && len(b) >= MaxCommand:
		return args, 0, malformed("a line of more than %d bytes", MaxCommand)
	case end < 0:
		return args, 0, errMore
	}
	line := bytes.TrimSuffix(b[:end], []byte{'\r'})
	if bytes.ContainsFunc(line, func(c rune) bool { return c < ' ' || c == '"' || c == '\'' }) {
		return args, 0, malformed("a quote or a control character in a line of words: send an array")
	}
	for len(line) > 0 {
		word, rest, _ := bytes.Cut(line, []byte{' '})
		line = rest
		if len(word) == 0 {
			continue
		}
		if len(args) == MaxArgs {
			return args, 0, malformed("more than %d words", MaxArgs)
		}
		args = append(args, word)
	}
	return args, end + 1, nil
}
