package rulesapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"
)

// importBatch is how many overrides are one change: others write between two.
const importBatch = 10_000

// ImportOverrides reads overrides, as stint override list --json writes them or one
// object behind the other, checks them all, and sets them. It returns how many are
// set, which is none unless all can be. Only a database takes many.
func (d *Editor) ImportOverrides(ctx context.Context, author string, from io.Reader) (set int, err error) {
	db, ok := d.Backend.(*rulesdb.DB)
	if !ok {
		return 0, errors.New("overrides are imported into a database: name it with --rules")
	}
	all, err := d.readOverrides(ctx, from)
	if err != nil {
		return 0, err
	}
	for set < len(all) {
		n := min(len(all)-set, importBatch)
		if err := db.ImportOverrides(ctx, author, all[set:set+n]); err != nil {
			return set, err
		}
		set += n
	}
	return set, nil
}

func (d *Editor) readOverrides(ctx context.Context, from io.Reader) (all []rulesource.Override, err error) {
	f, err := d.Rules(ctx)
	if err != nil {
		return nil, err
	}
	seen := make(map[[2]string]int)
	for j, err := range objects(from) {
		var o rulesource.Override
		if err == nil {
			o = j.override()
			o.Key, err = d.keyIn(f, o.Rule, Customer{Key: o.Key})
		}
		if err == nil {
			err = errors.Join(checkIn(f, &o), rulesdb.CheckOverride(&o))
		}
		if err != nil {
			return nil, fmt.Errorf("override %d: %w", len(all)+1, err)
		}
		at := [2]string{o.Rule, o.Key}
		if first := seen[at]; first > 0 {
			return nil, fmt.Errorf("override %d: its customer is that of override %d: give each once", len(all)+1, first)
		}
		all = append(all, o)
		seen[at] = len(all)
	}
	return all, nil
}

// objects reads objects that stand in an array, or one behind the other.
func objects(from io.Reader) iter.Seq2[*Override, error] {
	return func(yield func(*Override, error) bool) {
		buffered := bufio.NewReader(from)
		array, err := inArray(buffered)
		in := json.NewDecoder(buffered)
		in.DisallowUnknownFields()
		if array {
			_, err = in.Token()
		}
		for err == nil && (!array || in.More()) {
			j := new(Override)
			if err = in.Decode(j); err == nil && !yield(j, nil) {
				return
			}
		}
		if err == nil { // the array ends
			_, err = in.Token()
		}
		if array && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			if _, err = in.Token(); err == nil {
				err = errors.New("text behind the array")
			}
		}
		if !errors.Is(err, io.EOF) {
			yield(nil, err)
		}
	}
}

// inArray reports whether the first value is an array.
func inArray(r *bufio.Reader) (bool, error) {
	for {
		c, err := r.ReadByte()
		if err != nil {
			return false, err
		}
		if !strings.ContainsRune(" \t\r\n", rune(c)) {
			return c == '[', r.UnreadByte()
		}
	}
}
