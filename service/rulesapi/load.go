package rulesapi

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/overridetable"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules"
)

const (
	// mostLoaded is how many overrides one load takes.
	mostLoaded = 10_000_000
	// longestRow bounds a row, in bytes, since an unclosed quote would make the rest of the file
	// one row.
	longestRow = 64 << 10
	// mostFaults is how many faulty rows a load names before it gives up.
	mostFaults = 20
)

// overrideColumns are the columns of overrides as CSV. The key is written as people write it, see
// [Customer]. Where that would be read as a different key, the stored key is written in base64.
var overrideColumns = []string{"rule", "key", "limits", "expires", "reason", "key_base64"}

// Loaded says what a load did.
type Loaded struct {
	Set int `json:"set"`
	// Over is how many rows were left out, since their time is over.
	Over int `json:"over,omitzero"`
	// InFlight is how many of those set have limits in flight, and had none by the rules.
	InFlight int `json:"in_flight,omitzero"`
}

// A RowError says what is wrong in a row of CSV.
type RowError struct {
	Line, Column int
	Err          error
}

// RowErrors are the first faults in the rows of a CSV.
type RowErrors []RowError

// Error has a line for each fault.
func (e RowErrors) Error() string {
	var b strings.Builder
	for _, one := range e {
		fmt.Fprintf(&b, "line %d, column %d: %s\n", one.Line, one.Column, strings.ReplaceAll(one.Err.Error(), "\n", "; "))
	}
	if len(e) == mostFaults {
		b.WriteString("and perhaps more: what follows was not read\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Is makes RowErrors match [rulesdb.ErrInput].
func (e RowErrors) Is(target error) bool { return target == rulesdb.ErrInput }

// LoadOverrides reads overrides as CSV, in the format of [Editor.ExportOverrides], and sets all of them as
// one change, or none. Overrides of other customers stay, and so do those of rows whose time is over.
// Faults in rows are [RowErrors]. After a failure, the same load continues from what is staged. If
// progress is not nil, it is called now and then with how many rows were read and how many are in
// force.
func (d *Editor) LoadOverrides(ctx context.Context, author string, from io.Reader, progress func(read, inForce int)) (Loaded, error) {
	switch k := d.Backend.(type) {
	case *Client:
		return k.loadOverrides(ctx, from, progress)
	case *rulesdb.DB:
		f, err := d.Rules(ctx)
		if err != nil {
			return Loaded{}, err
		}
		r := &overridesReader{editor: d, file: f, lines: overridetable.New()}
		n, err := k.LoadOverrides(ctx, author, r.all(from), progress)
		if errors.Is(err, rulesdb.ErrInput) && r.over > 0 && r.over == r.rows {
			err = nil // none is left to load
		}
		if err != nil {
			return Loaded{}, err
		}
		return Loaded{n, r.over, r.inFlight}, nil
	}
	return Loaded{}, &requestError{http.StatusUnprocessableEntity, "overrides are loaded into a database of rules, and this server has a file: set each with PUT /v1/override"}
}

// An overridesReader reads overrides as CSV.
type overridesReader struct {
	editor  *Editor
	file    *rules.File
	csv     *csv.Reader
	columns []string             // the fields of the first line
	record  []string             // the present row
	lines   *overridetable.Table // the customers so far, with their lines
	rows    int
	line    int // the line on which the present or last row began
	faults  RowErrors

	over, inFlight int // as in Loaded
}

// A rowBound is a reader that fails when a row gets too long.
type rowBound struct {
	from io.Reader
	row  int // bytes of the present row; 0 while only empty lines were read
}

var errLongRow = fmt.Errorf("a row of more than %d KiB begins here: is a quote not closed?", longestRow>>10)

func (b *rowBound) Read(p []byte) (int, error) {
	if b.row > longestRow {
		return 0, errLongRow
	}
	n, err := b.from.Read(p)
	b.count(p[:n])
	return n, err
}

// begin notes that a row begins, of which in may have buffered some bytes.
func (b *rowBound) begin(in *bufio.Reader) {
	b.row = 0
	begun, _ := in.Peek(in.Buffered())
	b.count(begun)
}

func (b *rowBound) count(p []byte) {
	if b.row > 0 || len(bytes.Trim(p, "\r\n")) > 0 || bytes.IndexByte(p, '\n') < 0 { // \r alone does not end a line
		b.row += len(p)
	}
}

// all yields the overrides, and then an error if there is one.
func (r *overridesReader) all(from io.Reader) iter.Seq2[*rulesource.Override, error] {
	return func(yield func(*rulesource.Override, error) bool) {
		bound := &rowBound{from: from}
		in := bufio.NewReader(bound)
		if mark, _ := in.Peek(3); bytes.Equal(mark, []byte("\ufeff")) { // the byte order mark of spreadsheets
			_, _ = in.Discard(len(mark))
		}
		r.csv = csv.NewReader(in)
		r.csv.ReuseRecord = true
		bound.begin(in)
		err := r.header()
		for err == nil && len(r.faults) < mostFaults {
			bound.begin(in)
			var o *rulesource.Override
			if o, err = r.next(); o != nil && len(r.faults) == 0 && !yield(o, nil) {
				return
			}
		}
		if len(r.faults) > 0 {
			err = r.faults
		}
		if !errors.Is(err, io.EOF) {
			yield(nil, err)
		}
	}
}

// header reads the names of the columns.
func (r *overridesReader) header() error {
	names, err := r.csv.Read()
	if r.record = names; err != nil && !errors.Is(err, io.EOF) {
		return cmp.Or(r.unread(err), io.EOF)
	}
	for i, name := range names {
		if !slices.Contains(overrideColumns, name) || slices.Contains(names[:i], name) {
			r.fault(i, fmt.Errorf("%q is no column, or is there twice: the first line has the names of columns, of %s", name, strings.Join(overrideColumns, ", ")))
			return io.EOF
		}
	}
	r.columns = slices.Clone(names)
	if !r.has("rule") || !r.has("limits") || !r.has("key") && !r.has("key_base64") {
		r.fault(0, errors.New("the first line needs the columns rule, key and limits"))
		return io.EOF
	}
	return nil
}

func (r *overridesReader) has(column string) bool { return slices.Contains(r.columns, column) }

// fault notes what is wrong in a field of the row.
func (r *overridesReader) fault(field int, err error) {
	at := RowError{1, 1, err}
	if len(r.record) > 0 { // otherwise only empty lines were read
		at.Line, at.Column = r.csv.FieldPos(field)
	}
	r.faults = append(r.faults, at)
}

// unread notes an error of the CSV, or returns it if reading must end.
func (r *overridesReader) unread(err error) error {
	var parse *csv.ParseError
	switch {
	case errors.Is(err, errLongRow):
		r.faults = append(r.faults, RowError{r.line + 1, 1, err})
		return io.EOF
	case !errors.As(err, &parse):
		return err
	case errors.Is(parse.Err, csv.ErrFieldCount):
		r.fault(0, fmt.Errorf("%d fields, and the first line names %d: several limits stand in one field, with ; between them", len(r.record), len(r.columns)))
	default:
		r.faults = append(r.faults, RowError{parse.Line, parse.Column, fmt.Errorf(`%w: write a field with a quote in quotes, and the quote twice, as in "say ""hello"""`, parse.Err)})
	}
	return nil
}

// next reads a row. The override is nil if the row is faulty, or its time is over.
func (r *overridesReader) next() (*rulesource.Override, error) {
	record, err := r.csv.Read()
	if r.record = record; err != nil {
		return nil, r.unread(err)
	}
	r.line, _ = r.csv.FieldPos(len(record) - 1)
	if r.rows++; r.rows > mostLoaded {
		r.fault(0, fmt.Errorf("more than %d overrides: load them in parts", mostLoaded))
		return nil, io.EOF
	}
	o, err := r.override()
	if err != nil {
		column, why, _ := strings.Cut(err.Error(), ": ")
		field := slices.Index(r.columns, column)
		if field >= 0 {
			err = errors.New(strings.TrimPrefix(why, "stint: "))
		}
		r.fault(max(0, field), err)
		return nil, nil
	}
	line, _ := r.csv.FieldPos(0)
	if first := r.lines.Set(o.Rule, o.Key, uint32(line)); first != overridetable.None {
		r.fault(0, fmt.Errorf("the customer of line %d again: give each once", first))
		return nil, nil
	}
	if !o.Expires.IsZero() && !o.Expires.After(time.Now()) {
		r.over++
		return nil, nil
	}
	if strings.Contains(r.field("limits"), "flight") && r.holds(o) {
		r.inFlight++
	}
	return o, nil
}

// holds reports whether an override has limits in flight, and its customer has none by the rules.
func (r *overridesReader) holds(o *rulesource.Override) bool {
	attrs, _ := r.file.Rules.AttributesOf(o.Rule, o.Key)
	usual := r.file.Rules.LimitsOf(o.Rule, attrs, "") // a plan would take a query for each row
	return slices.ContainsFunc(parsed(o.Limits), stint.Limit.InFlight) &&
		!slices.ContainsFunc(usual, func(l *policy.RuleLimit) bool { return l.Limit.InFlight() })
}

// field returns the row's field in a column, or "" if there is no such column.
func (r *overridesReader) field(column string) string {
	if i := slices.Index(r.columns, column); i >= 0 {
		return r.record[i]
	}
	return ""
}

// override reads the row.
func (r *overridesReader) override() (*rulesource.Override, error) {
	o := &rulesource.Override{Rule: r.field("rule"), Reason: r.field("reason")}
	switch text := r.field("limits"); text {
	case "unlimited":
		o.Unlimited = true
	case "block":
		o.Block = true
	case "":
		return nil, errors.New("limits: missing: write one such as 100/m, or unlimited, or block")
	default:
		for one := range strings.SplitSeq(text, ";") {
			o.Limits = append(o.Limits, strings.TrimSpace(one))
		}
	}
	if text := r.field("expires"); text != "" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil || at.Unix() <= 0 { // 0 means for good in the database
			return nil, fmt.Errorf("expires: %q is no time: write one such as 2027-01-31T12:00:00Z", text)
		}
		o.Expires = at
	}
	if err := r.key(o); err != nil {
		return nil, err
	}
	if err := checkIn(r.file, o); err != nil {
		return nil, err
	}
	return o, rulesdb.CheckOverride(o)
}

// key reads the key of the row.
func (r *overridesReader) key(o *rulesource.Override) (err error) {
	text, exact := r.field("key"), r.field("key_base64")
	if exact == "" && (!utf8.ValidString(text) || strings.Contains(text, "\x00")) {
		return errors.New("key: it has bytes that are no text: write it as base64 into the column key_base64, as stores have it")
	}
	if exact == "" {
		o.Key, err = r.editor.keyIn(r.file, o.Rule, Customer{Key: text})
		return err
	}
	if text != "" {
		return errors.New("key_base64: there is a key beside it: give one of both")
	}
	key, err := base64.StdEncoding.DecodeString(exact)
	if err != nil {
		return errors.New("key_base64: this is no base64")
	}
	o.Key = string(key)
	return nil
}

// ExportOverrides writes the overrides of a page, whatever its N, as CSV: those of one moment.
func (d *Editor) ExportOverrides(ctx context.Context, p rulesdb.Page, to io.Writer) error {
	if k, ok := d.Backend.(*Client); ok {
		return k.exportOverrides(ctx, p, to)
	}
	out := csv.NewWriter(to)
	f, err := d.Rules(ctx)
	if err == nil || errors.Is(err, rulesource.ErrEmpty) {
		err = out.Write(overrideColumns)
	}
	if err == nil {
		err = d.eachOverride(ctx, p, func(o rulesource.Override) error { return out.Write(rowOf(f, &o)) })
	}
	if err != nil {
		return err
	}
	out.Flush()
	return out.Error()
}

func (d *Editor) eachOverride(ctx context.Context, p rulesdb.Page, take func(rulesource.Override) error) error {
	if db, ok := d.Backend.(*rulesdb.DB); ok {
		return db.EachOverride(ctx, p, take)
	}
	p.N = math.MaxInt
	all, err := d.Overrides(ctx, p)
	for _, o := range all {
		err = cmp.Or(err, take(o))
	}
	return err
}

// rowOf returns the fields of overrideColumns, under the rules in force, if there are any.
func rowOf(f *rules.File, o *rulesource.Override) []string {
	row := []string{o.Rule, o.Key, strings.Join(o.Limits, ";"), "", o.Reason, ""}
	switch {
	case o.Unlimited:
		row[2] = "unlimited"
	case o.Block:
		row[2] = "block"
	}
	if !o.Expires.IsZero() {
		row[3] = o.Expires.UTC().Format(time.RFC3339Nano)
	}
	named := false
	if f != nil && strings.Contains(o.Key, "=") {
		names, _ := f.Rules.KeyAttributes(o.Rule)
		named = len(names) == 1 && namedBy(o.Key, names[0])
	}
	if _, explained := explainedKey(o.Key); explained || named || !utf8.ValidString(o.Key) || strings.ContainsAny(o.Key, "\r\x00") { // a CSV reader would change \r\n
		row[1], row[5] = "", base64.StdEncoding.EncodeToString([]byte(o.Key))
	}
	return row
}
