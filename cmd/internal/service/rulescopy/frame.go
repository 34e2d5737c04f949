package rulescopy

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"

	"github.com/stint-dev/stint/rulesource"
)

// maxFrame is the most that a frame may hold, in bytes: a document of 32 MiB in
// JSON may take twice its length.
const maxFrame = 64 << 20

// A Frame is one record of a copy; Begin, Override, Plan or End is set.
type Frame struct {
	Begin    *rulesource.Snapshot `json:"begin,omitempty"`
	Whole    bool                 `json:"whole,omitempty"`
	Override *rulesource.Override `json:"override,omitempty"`
	Key      []byte               `json:"key,omitempty"` // of the override or plan: any bytes
	Plan     *rulesource.Plan     `json:"plan,omitempty"`
	End      bool                 `json:"end,omitempty"`
}

// OverrideFrame returns an override as a frame.
func OverrideFrame(o *rulesource.Override) *Frame {
	bare := *o
	bare.Key = ""
	return &Frame{Override: &bare, Key: []byte(o.Key)}
}

// PlanFrame returns a plan as a frame.
func PlanFrame(p *rulesource.Plan) *Frame {
	bare := *p
	bare.Value = ""
	return &Frame{Plan: &bare, Key: []byte(p.Value)}
}

// Hand gives an override or a plan to a receiver; other frames are passed over.
func (f *Frame) Hand(to rulesource.Receiver) error {
	switch {
	case f.Override != nil:
		f.Override.Key = string(f.Key)
		return to.Override(f.Override)
	case f.Plan != nil:
		f.Plan.Value = string(f.Key)
		return to.Plan(f.Plan)
	}
	return nil
}

// lead is what stands before a frame: its length and its checksum.
const lead = 8

// Append appends a frame to bytes.
func (f *Frame) Append(to []byte) ([]byte, error) {
	data, err := json.Marshal(f)
	if err != nil {
		return to, err
	}
	to = binary.BigEndian.AppendUint32(to, uint32(len(data)))
	to = binary.BigEndian.AppendUint32(to, crc32.ChecksumIEEE(data))
	return append(to, data...), nil
}

// errTorn is for a frame that is cut off, or not what was written.
var errTorn = errors.New("cut off, or not what was written")

// A Reader reads frames.
type Reader struct {
	from io.Reader
	data []byte
	// At is where the last frame ended, from where the reader began.
	At int64
}

// NewReader returns a reader of frames. It reads in small pieces.
func NewReader(from io.Reader) *Reader { return &Reader{from: from} }

// Next reads a frame. The error is io.EOF at the end, another one for what is
// cut off or has another checksum.
func (r *Reader) Next() (*Frame, error) {
	if err := r.raw(); err != nil {
		return nil, err
	}
	return r.frame()
}

// bound reads a frame, and returns it if it is no override and no plan, which
// are most of a copy; else nil.
func (r *Reader) bound() (*Frame, error) {
	if err := r.raw(); err != nil {
		return nil, err
	}
	if bytes.HasPrefix(r.data, []byte(`{"override":`)) || bytes.HasPrefix(r.data, []byte(`{"key":`)) {
		return nil, nil
	}
	return r.frame()
}

func (r *Reader) frame() (*Frame, error) {
	f := new(Frame)
	if json.Unmarshal(r.data, f) != nil {
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
