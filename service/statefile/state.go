package statefile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/atomicfile"
)

// A state file is a line with its format and the SHA-256 of what follows, and
// then JSON.
const stateFormat = "stint-state 1 "

// maxState bounds the file, in bytes.
const maxState = 64 << 20

// A place is whose override it is.
type place struct{ rule, key string }

// newState returns one that holds nothing.
func newState() state {
	return state{overrides: make(map[place]rulesource.Override), before: make(map[int64]rulesource.Override)}
}

// A state is what a state file holds. Its parts are never changed in place.
type state struct {
	overrides map[place]rulesource.Override
	acts      []rulesdb.AuditEntry          // oldest first
	before    map[int64]rulesource.Override // what acts of these took the place of
	number    int64                         // of the last act
}

// kept is a state as JSON. Keys are bytes, which need not be UTF-8.
type kept struct {
	Number    int64                  `json:"number"`
	Overrides []keptOverride         `json:"overrides"`
	Acts      []rulesdb.AuditEntry   `json:"acts"`
	Before    map[int64]keptOverride `json:"before"`
}

type keptOverride struct {
	rulesource.Override
	Key []byte
}

// override returns what was kept.
func (k *keptOverride) override() rulesource.Override {
	k.Override.Key = string(k.Key)
	return k.Override
}

// clone returns a copy that can be changed.
func (s *state) clone() state {
	return state{maps.Clone(s.overrides), slices.Clone(s.acts), maps.Clone(s.before), s.number}
}

// with returns a copy with another override at a place.
func (s *state) with(at place, o rulesource.Override) state {
	next := s.clone()
	next.overrides[at] = o
	if o.Removed {
		delete(next.overrides, at)
	}
	return next
}

// note adds an act, and returns its number.
func (s *state) note(at time.Time, a rulesdb.Act) int64 {
	s.number++
	s.acts = append(s.acts, rulesdb.AuditEntry{Number: s.number, At: at, Act: a})
	if len(s.acts) > mostActs {
		delete(s.before, s.acts[0].Number)
		s.acts = s.acts[1:]
	}
	return s.number
}

// act returns an act; nil if it is not known.
func (s *state) act(number int64) *rulesdb.AuditEntry {
	if i := slices.IndexFunc(s.acts, func(d rulesdb.AuditEntry) bool { return d.Number == number }); i >= 0 {
		return &s.acts[i]
	}
	return nil
}

// notUndone fails if an act has been taken back.
func (s *state) notUndone(act int64) error {
	if slices.ContainsFunc(s.acts, func(d rulesdb.AuditEntry) bool { return d.Number > act && d.Reason == rulesdb.UndoOf(act) }) {
		return fmt.Errorf("%w: act %d has been taken back", rulesdb.ErrConflict, act)
	}
	return nil
}

// write puts the state into a file; "" is none.
func (s *state) write(path string) error {
	if path == "" {
		return nil
	}
	k := kept{Number: s.number, Acts: s.acts, Before: make(map[int64]keptOverride, len(s.before))}
	for number, o := range s.before {
		k.Before[number] = keptOverride{o, []byte(o.Key)}
	}
	for _, o := range s.overrides {
		k.Overrides = append(k.Overrides, keptOverride{o, []byte(o.Key)})
	}
	text, err := json.Marshal(&k)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	return atomicfile.Write(path, func(w io.Writer) error {
		if _, err := io.WriteString(w, stateFormat+hex.EncodeToString(sum[:])+"\n"); err != nil {
			return err
		}
		_, err := w.Write(text)
		return err
	})
}

// read reads a file; one that is not there is empty.
func (s *state) read(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, maxState+1))
	if err != nil {
		return err
	}
	if err := s.decode(data); err != nil {
		return fmt.Errorf("%s: unusable state: %w; the file stays as it is: put a good one in its place, or move it away to start without overrides", path, err)
	}
	return nil
}

func (s *state) decode(data []byte) error {
	line, text, ok := bytes.Cut(data, []byte("\n"))
	sum, format := bytes.CutPrefix(line, []byte(stateFormat))
	switch {
	case !ok || !format:
		return fmt.Errorf("it does not begin with %q", stateFormat)
	case len(data) > maxState:
		return fmt.Errorf("more than %d bytes", maxState)
	}
	if want := sha256.Sum256(text); string(sum) != hex.EncodeToString(want[:]) {
		return errors.New("the checksum is another: torn or damaged")
	}
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		return err
	}
	for _, one := range k.Overrides {
		o := one.override()
		s.overrides[place{o.Rule, o.Key}] = o
	}
	for number, one := range k.Before {
		s.before[number] = one.override()
	}
	s.acts, s.number = k.Acts, k.Number
	return nil
}
