package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/stint-dev/stint/planner/accesslog"
)

// keep writes the body to a file and seeks to its beginning. The file has no name, so that nothing
// stays behind after a crash.
func (p *Planner) keep(w http.ResponseWriter, r *http.Request) (*kept, error) {
	f, err := os.CreateTemp(p.o.Dir, "stint-lab-")
	if err != nil {
		return nil, errHere // err would tell the client about this machine
	}
	if os.Remove(f.Name()) != nil {
		f.Close()
		return nil, errHere
	}
	body := &sent{r: http.MaxBytesReader(w, r.Body, p.o.MaxBody), p: p}
	n, err := io.Copy(f, body)
	switch _, large := errors.AsType[*http.MaxBytesError](body.err); {
	case large:
		err = p.tooLarge()
	case errors.Is(body.err, errBusy):
		err = errBusy
	case body.err != nil:
		err = errors.New("the log did not arrive in full, or not in time")
	case err != nil:
		err = errHere // most likely the disk is full
	case n == 0:
		err = errors.New("the log is empty")
	default:
		if _, err = f.Seek(0, io.SeekStart); err != nil {
			err = errHere
		}
	}
	log := &kept{f, p, body.n}
	if err != nil {
		log.drop()
		return nil, err
	}
	return log, nil
}

// kept is a log in a file. Its bytes count for the planner until it is dropped.
type kept struct {
	*os.File
	p *Planner
	n int64
}

func (k *kept) drop() {
	k.Close()
	k.p.kept.Add(-k.n)
}

// sent counts the bytes of a body, and keeps its error to tell it from one of the disk.
type sent struct {
	r   io.Reader
	p   *Planner
	n   int64
	err error
}

func (s *sent) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.n += int64(n)
	if others := s.p.kept.Add(int64(n)) - s.n; err == nil && s.n > (4*s.p.o.MaxBody-others)/2 {
		err = errBusy
	}
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// unpacked is the unpacked text of a log, up to bounds, since a few bytes may unpack to any number.
// It may be closed while it is read.
type unpacked struct {
	mu          sync.Mutex
	log         *accesslog.File
	block, rest []byte
	text, lines int64 // how much may still come
	bound       error // the bound that was reached, or nil
	err         error
}

func unpack(r io.Reader, text, lines int64) (*unpacked, error) {
	log, err := accesslog.From("the log", r, time.Time{})
	if err != nil {
		return nil, err
	}
	return &unpacked{log: log, text: text - log.NULs, lines: lines, bound: errTooLarge(fmt.Sprintf(
		"the log has more than %d lines, or %s once unpacked: take a part of it, or let stint plan read it from a terminal, where it may be of any size", lines, size(text)))}, nil
}

// Read implements [io.Reader].
func (u *unpacked) Read(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.rest) == 0 {
		if u.err != nil {
			return 0, u.err
		}
		if u.text < 0 { // NUL bytes before the first line may do it
			u.err = u.bound
			return 0, u.err
		}
		if u.block, u.err = u.log.Next(u.block); u.err != nil {
			if !errors.Is(u.err, io.EOF) {
				u.err = errors.New("it ends early, or is damaged: " + u.err.Error()) // not wrapped, or readers would take an early end for the end
			}
			return 0, u.err
		}
		u.text -= int64(len(u.block))
		u.lines -= int64(bytes.Count(u.block, []byte{'\n'}))
		if u.text < 0 || u.lines < 0 {
			u.err = u.bound
			return 0, u.err
		}
		u.rest = u.block
	}
	n := copy(p, u.rest)
	u.rest = u.rest[n:]
	return n, nil
}

// over returns the error that names the bound which the log is over, or nil.
func (u *unpacked) over() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.text < 0 || u.lines < 0 {
		return u.bound
	}
	return nil
}

// Close drops the log.
func (u *unpacked) Close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.log.Close()
	u.rest, u.err = nil, os.ErrClosed
}

// size writes a number of bytes for people.
func size(n int64) string {
	for _, unit := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= unit.size && n%unit.size == 0 {
			return fmt.Sprintf("%d %s", n/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
