package rulescopy

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"

	"github.com/stint-dev/stint/rulesource"
)

// maxFrame is the greatest size of a frame, in bytes: a document of 32 MiB and what a source keeps
// may be twice as long in JSON.
const maxFrame = 128 << 20

// A Frame is one record of a copy. One of Begin, Override, Plan and End is set.
type Frame struct {
	Begin    *rulesource.Snapshot `json:"begin,omitempty"`
	Whole    bool                 `json:"whole,omitempty"`
	End      bool                 `json:"end,omitempty"`
	Override *rulesource.Override `json:"-"`
	Plan     *rulesource.Plan     `json:"-"`
}

// DeliverTo passes an override or a plan to a receiver, and ignores other frames.
func (f *Frame) DeliverTo(to rulesource.Receiver) error {
	switch {
	case f.Override != nil:
		return to.Override(f.Override)
	case f.Plan != nil:
		return to.Plan(f.Plan)
	}
	return nil
}

// lead is the size of what precedes a frame: its length and its checksum.
const lead = 8

// Append appends the encoded frame to a slice.
func (f *Frame) Append(to []byte) ([]byte, error) {
	start := len(to)
	to = append(to, make([]byte, lead)...)
	switch {
	case f.Override != nil:
		to = appendOverride(to, f.Override)
	case f.Plan != nil:
		to = appendPlan(to, f.Plan)
	default:
		data, err := json.Marshal(f)
		if err != nil {
			return to[:start], err
		}
		to = append(to, data...)
	}
	data := to[start+lead:]
	binary.BigEndian.PutUint32(to[start:], uint32(len(data)))
	binary.BigEndian.PutUint32(to[start+4:], crc32.ChecksumIEEE(data))
	return to, nil
}

// errTorn says that a frame is cut off, or not as it was written.
var errTorn = errors.New("cut off, or not what was written")

// A Reader reads frames.
type Reader struct {
	from io.Reader
	data []byte
	// At is the offset at which the last frame ended, from where the reader began.
	At int64
}

// NewReader returns a reader of frames. It reads in small pieces.
func NewReader(from io.Reader) *Reader { return &Reader{from: from} }

// Next reads a frame. The error is io.EOF at the end, and another error for a frame that is cut off
// or has a wrong checksum.
func (r *Reader) Next() (*Frame, error) {
	if err := r.raw(); err != nil {
		return nil, err
	}
	return r.frame()
}

// bound reads a frame. It decodes and returns it only if it is no override and no plan, which are
// most of a copy; for those it returns nil.
func (r *Reader) bound() (*Frame, error) {
	if err := r.raw(); err != nil {
		return nil, err
	}
	if len(r.data) > 0 && (r.data[0] == overrideLetter || r.data[0] == planLetter) {
		return nil, nil
	}
	return r.frame()
}

func (r *Reader) frame() (*Frame, error) {
	f, good := new(Frame), false
	switch {
	case len(r.data) > 0 && r.data[0] == overrideLetter:
		f.Override, good = readOverride(r.data[1:])
	case len(r.data) > 0 && r.data[0] == planLetter:
		f.Plan, good = readPlan(r.data[1:])
	default:
		good = json.Unmarshal(r.data, f) == nil
	}
	if !good {
		return nil, errTorn
	}
	return f, nil
}

// raw reads the bytes of a frame.
func (r *Reader) raw() error {
	var head [lead]byte
	if _, err := io.ReadFull(r.from, head[:]); err != nil {
		return torn(err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return errTorn
	}
	if int(n) > cap(r.data) {
		r.data = make([]byte, n)
	}
	r.data = r.data[:n]
	if _, err := io.ReadFull(r.from, r.data); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return torn(err)
	}
	if crc32.ChecksumIEEE(r.data) != binary.BigEndian.Uint32(head[4:]) {
		return errTorn
	}
	r.At += lead + int64(n)
	return nil
}

func torn(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errTorn
	}
	return err
}
