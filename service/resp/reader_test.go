package resp_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stint-dev/stint/service/resp"
)

// commands reads all commands of a stream.
func commands(from io.Reader) (all []string, err error) {
	r := resp.NewReader(from)
	for {
		args, err := r.Next()
		if err != nil {
			return all, err
		}
		all = append(all, fmt.Sprintf("%q", args))
	}
}

// How the bytes are cut does not matter.
func TestReaderPieces(t *testing.T) {
	stream := "PING\r\n*2\r\n$4\r\nECHO\r\n$5\r\nh\r\nlo\r\n\r\n" + "*1\r\n$4\r\nPING\r\nSET a b\n*0\r\n*2\r\n$0\r\n\r\n$40000\r\n" + strings.Repeat("x", 40000) + "\r\n"
	want, err := commands(strings.NewReader(stream))
	if !errors.Is(err, io.EOF) || len(want) != 5 {
		t.Fatalf("%d commands, %v", len(want), err)
	}
	for name, from := range map[string]io.Reader{
		"a byte at a time": iotest.OneByteReader(strings.NewReader(stream)),
		"halves":           iotest.HalfReader(strings.NewReader(stream)),
		"data with EOF":    iotest.DataErrReader(strings.NewReader(stream)),
	} {
		got, err := commands(from)
		if !errors.Is(err, io.EOF) || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %d commands, %v", name, len(got), err)
		}
	}
	for cut := range len(stream) {
		_, err := commands(strings.NewReader(stream[:cut]))
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
}

func TestReaderBounds(t *testing.T) {
	for name, stream := range map[string]string{
		"a line without end":     strings.Repeat("x", 10*resp.MaxCommand),
		"a command without end":  "*2\r\n$60000\r\n" + strings.Repeat("x", 60000) + "\r\n$99999999\r\n" + strings.Repeat("x", 60000),
		"too many words":         strings.Repeat("x ", 257) + "\r\n",
		"a length without end":   "*" + strings.Repeat("1", 100),
		"a length of nothing":    "*\r\n",
		"a word in quotes":       "ECHO \"a\"\r\n",
		"a tab for a blank":      "ECHO\ta\r\n",
		"a NUL in a line":        "ECHO a\x00\r\n",
		"zeros in front":         "*" + strings.Repeat("0", 100) + "1\r\n",
		"a string of minus five": "*1\r\n$-5\r\n",
	} {
		_, err := commands(strings.NewReader(stream))
		if _, ok := errors.AsType[*resp.ProtocolError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever comes, the reader ends with an error and within its bounds; and what
// it has understood reads the same when it is written as an array.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{"PING\r\n", "*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n", "*-1\r\n", "*1\r\n$-1\r\n", "*3\r\n$", "\r\n\r\n*0\r\nx"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := resp.NewReader(iotest.HalfReader(bytes.NewReader(stream)))
		for {
			args, err := r.Next()
			if err != nil {
				return
			}
			if len(args) == 0 || len(args) > resp.MaxArgs {
				t.Fatalf("%d arguments", len(args))
			}
			var again bytes.Buffer
			fmt.Fprintf(&again, "*%d\r\n", len(args))
			for _, arg := range args {
				fmt.Fprintf(&again, "$%d\r\n%s\r\n", len(arg), arg)
			}
			if again.Len() > resp.MaxCommand {
				continue // words are shorter than strings
			}
			twice, err := resp.NewReader(&again).Next()
			if err != nil || fmt.Sprintf("%q", twice) != fmt.Sprintf("%q", args) {
				t.Fatalf("%q reads back as %q, %v", args, twice, err)
			}
		}
	})
}
