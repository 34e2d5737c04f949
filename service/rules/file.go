package rules

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stint-dev/stint/internal/match"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/policy/rulesfile"
	"github.com/stint-dev/stint/rulesource"
	"golang.org/x/net/http/httpguts"
)

// maxBytes is the greatest size of a file, the bound of package rulesfile.
const maxBytes = 32 << 20

// A File is a rules file that has been read without an error.
type File struct {
	// Rules are the rules.
	Rules *policy.Rules
	// Settings are the file's settings beside its rules.
	Settings Settings
	// Warnings are about what is allowed but probably not meant.
	Warnings []rulesfile.Warning
	// Name is the name of the file in errors, Document is its text.
	Name     string
	Document []byte
	// Since is when the file took the place of another; zero for the first.
	Since time.Time

	hash string // of the bytes read
}

// Hash returns the hash of the text; see [rulesource.HashOf].
func (f *File) Hash() string {
	if f.hash != "" {
		return f.hash
	}
	return rulesource.HashOf(f.Document)
}

// An Error says what is wrong in which file. It wraps [rulesfile.Errors], or the operating system's
// error when the file cannot be read.
type Error struct {
	Name string // the name of the file
	Err  error
}

// Error returns a line for each error, beginning with file, line and column.
func (e *Error) Error() string {
	errs, ok := errors.AsType[rulesfile.Errors](e.Err)
	if !ok {
		return e.Name + ": " + e.Err.Error()
	}
	lines := make([]string, len(errs))
	for i, one := range errs {
		sep := ":"
		if one.Line == 0 {
			sep = ": "
		}
		lines[i] = e.Name + sep + one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// fault returns an error about a file as a whole.
func fault(format string, args ...any) error {
	return rulesfile.Errors{{Reason: fmt.Sprintf(format, args...)}}
}

// Read reads a rules file. The error is an *[Error].
func Read(path string) (*File, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, &Error{path, err}
	}
	return Decode(path, data)
}

// readFile reads a regular file of at most maxBytes. It refuses other kinds of files: a pipe would
// wait for its writer, and a device may do anything.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	if err := regular(info); err != nil {
		return nil, err
	}
	// If a pipe has replaced the file meanwhile, O_NONBLOCK keeps the open from waiting.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, withoutPath(err)
	}
	if err := regular(info); err != nil {
		return nil, err
	}
	return ReadAll(f)
}

// ReadAll reads a possible rules file from a stream, and fails once it is too large for one.
func ReadAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, withoutPath(err)
	}
	return data, fits(data)
}

func regular(info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return fault("a directory; name the file in it")
	case !info.Mode().IsRegular():
		return fault("not a regular file; standard input is read as -, by stint validate")
	case info.Size() > maxBytes:
		return fault("%d bytes: a rules file has at most 32 MiB", info.Size())
	}
	return nil
}

// withoutPath removes the path from an error of the operating system, since [Error] names the file.
func withoutPath(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// Decode decodes the bytes of a rules file. The name tells JSON (.json) from YAML (.yaml or .yml);
// with other names, the bytes are JSON if they begin as JSON does. The error is an *[Error] of
// [rulesfile.Errors].
func Decode(name string, data []byte) (*File, error) {
	if err := fits(data); err != nil {
		return nil, &Error{name, err}
	}
	root, _, err := readTree(name, data)
	if err != nil {
		return nil, &Error{name, err}
	}
	return decode(name, root, func() ([]byte, error) { return data, nil })
}

func fits(data []byte) error {
	if len(data) > maxBytes {
		return fault("more than %d bytes: a rules file has at most 32 MiB", maxBytes)
	}
	return nil
}

// DecodeTree is Decode for YAML that is generated from a tree while that is read. The bytes must
// be within the bounds of a file, and are not parsed. The list of rules may end once there are too
// many bytes.
func DecodeTree(name string, root *rulesfile.Node, text func() []byte) (*File, error) {
	return decode(name, root, func() ([]byte, error) {
		data := text()
		err := fits(data)
		if bad := readable(data); err == nil && bad != nil {
			bad.Hint = "" // it is about files that somebody writes
			err = rulesfile.Errors{bad}
		}
		return data, err
	})
}

// decode makes a file from its tree.
func decode(name string, root *rulesfile.Node, text func() ([]byte, error)) (*File, error) {
	f := &File{Name: name}
	var errs rulesfile.Errors
	f.Settings, f.Warnings, errs = settings(root)
	file, err := rulesfile.Decode(root, settingNames...)
	if err != nil {
		more, _ := errors.AsType[rulesfile.Errors](err)
		errs = append(errs, more...)
	}
	if len(errs) > 0 {
		slices.SortStableFunc(errs, before)
		return nil, &Error{name, errs}
	}
	if f.Document, err = text(); err != nil {
		return nil, &Error{name, err}
	}
	f.hash, f.Rules = rulesource.HashOf(f.Document), policy.Compile(file)
	f.Warnings = append(f.Warnings, file.Warnings()...)
	return f, nil
}

func before(a, b *rulesfile.Error) int {
	if a.Line != b.Line {
		return a.Line - b.Line
	}
	return a.Column - b.Column
}

// isJSON reports whether a file is JSON and not YAML.
func isJSON(name string, data []byte) bool {
	switch dot := strings.LastIndexByte(name, '.'); {
	case dot < 0:
	case strings.EqualFold(name[dot:], ".json"):
		return true
	case strings.EqualFold(name[dot:], ".yaml"), strings.EqualFold(name[dot:], ".yml"):
		return false
	}
	const blanks = " \t\r\n"
	rest, open := strings.CutPrefix(strings.TrimLeft(string(data[:min(len(data), 4096)]), blanks), "{")
	rest = strings.TrimLeft(rest, blanks)
	return open && (strings.HasPrefix(rest, `"`) || strings.HasPrefix(rest, "}"))
}

// Settings are what a rules file says beside its rules. The zero value is that of a file without
// settings.
type Settings struct {
	// TrustedProxies are the addresses of the proxies that are trusted to name the client's
	// address. The default value is none.
	TrustedProxies []netip.Prefix
	// ClientIPHeader is the header in which they name it, in canonical form. The default value ""
	// means X-Forwarded-For.
	ClientIPHeader string
	// Store is the URL of the store for what keys have used. It may hold a password. The default
	// value "" means the memory of the process.
	Store string
	// StoreLine and StoreColumn are where the file names the store, 0 if it does not.
	StoreLine, StoreColumn int
	// OnDemand says that customers' own limits are read from the database when a customer comes,
	// instead of all being held in memory. The default value is false.
	OnDemand bool
}

// settingNames are the names of the settings in a file; schema.go lists the same.
var settingNames = []string{"trusted_proxies", "client_ip_header", "store", "overrides"}

// maxErrors is how many errors in settings are reported.
const maxErrors = 100

const addressHint = "write an address or a range, such as 192.0.2.1, 10.0.0.0/8 or 2001:db8::/32"

// settings reads the settings. Rulesfile.Decode reports fields that are unknown or given twice.
func settings(root *rulesfile.Node) (s Settings, warnings []rulesfile.Warning, errs rulesfile.Errors) {
	if root == nil || root.Kind != rulesfile.MapKind {
		return s, nil, nil
	}
	fail := func(n *rulesfile.Node, path, reason, hint string) {
		if len(errs) == maxErrors {
			return
		}
		errs = append(errs, &rulesfile.Error{Line: n.Line, Column: n.Column, Path: path, Reason: reason, Hint: hint})
	}
	var header *rulesfile.Node
	for _, f := range root.Fields {
		n := f.Value
		switch f.Name {
		case "trusted_proxies":
			s.TrustedProxies = proxies(n, f.Name, fail)
			for _, p := range s.TrustedProxies {
				if p.Bits() == 0 {
					warnings = append(warnings, rulesfile.Warning{Line: n.Line, Column: n.Column,
						Reason: fmt.Sprintf("%s: %v is every address, so any client says which it has", f.Name, p),
						Hint:   "name the proxies alone"})
				}
			}
		case "client_ip_header":
			header = n
			if n.Kind != rulesfile.String || !httpguts.ValidHeaderFieldName(n.Value) {
				fail(n, f.Name, "want the name of a header", "write X-Forwarded-For (the default), Forwarded, or one that holds one address, such as X-Real-IP")
				continue
			}
			s.ClientIPHeader = http.CanonicalHeaderKey(n.Value)
		case "store":
			if n.Kind != rulesfile.String || n.Value == "" {
				fail(n, f.Name, "want a URL as text", "such as redis://127.0.0.1:6379; drop the field to keep counts in memory")
				continue
			}
			s.Store, s.StoreLine, s.StoreColumn = n.Value, n.Line, n.Column
		case "overrides":
			if n.Kind != rulesfile.String || n.Value != "on_demand" && n.Value != "in_memory" {
				fail(n, f.Name, "want in_memory or on_demand", "in_memory, the default, holds all customers' own limits of the database; on_demand asks for each as it comes")
				continue
			}
			s.OnDemand = n.Value == "on_demand"
		}
	}
	if header != nil && len(s.TrustedProxies) == 0 && len(errs) == 0 {
		warnings = append(warnings, rulesfile.Warning{Line: header.Line, Column: header.Column,
			Reason: "client_ip_header has no effect while no proxy is trusted",
			Hint:   "name the proxies in trusted_proxies, or by --trusted-proxy"})
	}
	return s, warnings, errs
}

// proxies reads one address or range, or a list of them.
func proxies(n *rulesfile.Node, path string, fail func(n *rulesfile.Node, path, reason, hint string)) (all []netip.Prefix) {
	items := []*rulesfile.Node{n}
	if n.Kind == rulesfile.List {
		items = n.Items
	}
	for i, item := range items {
		at := path
		if n.Kind == rulesfile.List {
			at = fmt.Sprintf("%s[%d]", path, i)
		}
		if item.Kind != rulesfile.String {
			fail(item, at, fmt.Sprintf("want text, not %v", item.Kind), addressHint)
			continue
		}
		p, err := ParseProxy(item.Value)
		if err != nil {
			reason, hint, _ := strings.Cut(err.Error(), "; ")
			fail(item, at, reason, hint)
			continue
		}
		all = append(all, p)
	}
	return all
}

// ParseProxy reads an address or a range of trusted proxies, for flags as well as for files. The
// error says what would be right.
func ParseProxy(text string) (netip.Prefix, error) {
	p, reason, hint := match.ParseNet(text)
	if reason != "" {
		return p, fmt.Errorf("%.80q: %s; %s", text, reason, hint)
	}
	return p, nil
}
