package simulate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// MaxLine is the longest line that is read, in bytes without its end.
const MaxLine = 16 << 20

// A LineError says which line could not be answered, and why.
type LineError struct {
	Line int // from 1; blank lines count
	Err  error
}

// Error returns "line 3: " and the reason.
func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns the reason.
func (e *LineError) Unwrap() error { return e.Err }

// EachLine calls do with each line that is not blank. The line is valid until do returns. An error
// of do ends the reading and is returned as a [*LineError].
func EachLine(in io.Reader, do func(number int, line []byte) error) error {
	s, number := bufio.NewScanner(in), 0
	s.Buffer(make([]byte, 64<<10), MaxLine+len("\r\n")+1)
	for s.Scan() {
		number++
		line, err := s.Bytes(), error(nil)
		if len(line) > MaxLine {
			err = errLong
		} else if len(bytes.TrimLeft(line, " \t\r")) > 0 {
			err = do(number, line)
		}
		if err != nil {
			return &LineError{number, err}
		}
	}
	err := s.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = &LineError{number + 1, errLong}
	}
	return err
}

var errLong = fmt.Errorf("longer than %d MiB", MaxLine>>20)

// flushing is a reader that flushes the buffered output before it may have to wait for input.
type flushing struct {
	in  io.Reader
	out *bufio.Writer
}

func (f flushing) Read(p []byte) (int, error) {
	if err := f.out.Flush(); err != nil {
		return 0, err
	}
	return f.in.Read(p)
}
