package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// source is where files that are no pages can be read.
const source = "https://github.com/stint-dev/stint/blob/main/"

// A shelf is documents for one kind of reader.
type shelf struct {
	Title string
	Files []string
}

// shelves are the documents by who reads them; README.md is the front page. What
// is in docs and not named here is put on the last.
var shelves = []shelf{
	{"Start", []string{"README.md"}},
	{"In Go", []string{"docs/MOVING.md", "docs/HTTP.md", "docs/ROUTERS.md", "docs/CADDY.md", "docs/GRPC.md", "docs/LIMITS.md"}},
	{"For a platform", []string{"docs/PROXY.md", "docs/SERVE.md", "docs/RULES.md", "docs/ENVOY.md", "docs/RESP.md", "docs/CLIENTS.md", "docs/REDIS.md"}},
	{"To operate", []string{"docs/KUBERNETES.md", "docs/OPERATE.md", "docs/PAGE.md", "docs/METRICS.md", "docs/RULES-DB.md", "docs/PLAN.md", "docs/LAB.md", "docs/THREATS.md", "SECURITY.md"}},
	{"Reference", []string{"docs/SEMANTICS.md", "docs/DESIGN.md", "docs/FIGURES.md", "docs/REDIS-FIGURES.md", "docs/RELEASING.md", "CHANGELOG.md", "CONTRIBUTING.md"}},
}

//go:embed page.html
var pageHTML string

//go:embed style.css
var style []byte

//go:embed search.js
var script []byte

//go:embed reach.js
var reach []byte

var layout = template.Must(template.New("page").Parse(pageHTML))

// A page is one document in the list of them.
type page struct {
	File, Name string
	Here       bool
}

// A group is pages for one kind of reader.
type group struct {
	Title string
	Pages []page
}

// A passage is what search finds: a heading, and the words below it.
type passage struct {
	Page  string `json:"p"`
	ID    string `json:"i"`
	Title string `json:"t"`
	Text  string `json:"x"`
}

var markdown = goldmark.New(goldmark.WithExtensions(
	extension.Linkify, extension.Strikethrough,
	extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), // no styles of its own
), goldmark.WithParserOptions(parser.WithAutoHeadingID()))

// A site is one run.
type site struct {
	root, out string
	shelves   []shelf
}

// open finds the documents.
func open(root, out string) (*site, error) {
	s := &site{root: root, out: out, shelves: slices.Clone(shelves)}
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return nil, err
	}
	last := &s.shelves[len(s.shelves)-1]
	last.Files = slices.Clone(last.Files)
	for _, file := range files {
		name := "docs/" + filepath.Base(file)
		if !slices.ContainsFunc(s.shelves, func(one shelf) bool { return slices.Contains(one.Files, name) }) {
			last.Files = append(last.Files, name)
		}
	}
	return s, nil
}

// build writes the site, and returns how many pages it has.
func build(root, out string) (int, error) {
	s, err := open(root, out)
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return 0, err
	}
	var index []passage
	n := 0
	for _, g := range s.shelves {
		for _, file := range g.Files {
			found, err := s.write(file)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", file, err)
			}
			index = append(index, found...)
			n++
		}
	}
	list, err := json.Marshal(index)
	if err != nil {
		return 0, err
	}
	for name, text := range map[string][]byte{"style.css": style, "search.js": script, "reach.js": reach, "index.json": list} {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			return 0, err
		}
	}
	if err := pictures(root, out); err != nil {
		return 0, err
	}
	return n, lab(root, filepath.Join(out, "lab"))
}

// write makes one page, and returns what search finds on it.
func (s *site) write(file string) ([]passage, error) {
	from, err := os.ReadFile(filepath.Join(s.root, file))
	if err != nil {
		return nil, err
	}
	tree := markdown.Parser().Parse(text.NewReader(from), parser.WithContext(parser.NewContext(parser.WithIDs(make(headings)))))
	found := s.read(tree, from, file)
	linkLimits(tree, from)
	var body bytes.Buffer
	if err := markdown.Renderer().Render(&body, from, tree); err != nil {
		return nil, err
	}
	title := "stint"
	if len(found) > 0 {
		title = found[0].Title
	}
	var whole bytes.Buffer
	err = layout.Execute(&whole, struct {
		Title  string
		Groups []group
		Body   template.HTML
	}{title, s.navigation(file), template.HTML(emptyHeads.ReplaceAllString(body.String(), "<td$1></td>"))}) // our own documents
	if err != nil {
		return nil, err
	}
	return found, os.WriteFile(filepath.Join(s.out, pageName(file)), whole.Bytes(), 0o644)
}

// pageName returns the page of a document: index.html for README.md.
func pageName(file string) string {
	if file == "README.md" {
		return "index.html"
	}
	return strings.ToLower(strings.TrimSuffix(path.Base(file), ".md")) + ".html"
}

func (s *site) navigation(here string) (all []group) {
	for _, g := range s.shelves {
		one := group{Title: g.Title}
		for _, file := range g.Files {
			name := strings.TrimSuffix(path.Base(file), ".md")
			if file == "README.md" {
				name = "stint"
			}
			one.Pages = append(one.Pages, page{File: pageName(file), Name: name, Here: file == here})
		}
		all = append(all, one)
	}
	return all
}

// read points the links of a document at pages, and returns its passages.
func (s *site) read(tree ast.Node, from []byte, file string) (found []passage) {
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			id, _ := n.AttributeString("id")
			name, _ := id.([]byte)
			found = append(found, passage{Page: pageName(file), ID: string(name), Title: plain(n, from)})
		case *ast.Paragraph, *ast.TextBlock:
			if len(found) > 0 {
				found[len(found)-1].Text += plain(n, from) + " "
			}
		case *ast.Link:
			n.Destination = []byte(s.target(string(n.Destination), file))
		case *ast.Image:
			n.Destination = []byte(path.Base(string(n.Destination)))
		}
		return ast.WalkContinue, nil
	})
	return found
}

// plain returns the words of a node.
func plain(n ast.Node, from []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(from))
			if t.SoftLineBreak() {
				b.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// target returns where a link of a document leads on the site: to a page, a
// picture, or the file where the source can be read.
func (s *site) target(link, file string) string {
	if link == "" || strings.HasPrefix(link, "#") || strings.Contains(link, "://") {
		return link
	}
	link, fragment, cut := strings.Cut(link, "#")
	if cut {
		fragment = "#" + fragment
	}
	full := path.Join(path.Dir(file), link)
	for _, g := range s.shelves {
		for _, one := range g.Files {
			if one == full {
				return pageName(one) + fragment
			}
		}
	}
	if isPicture.MatchString(full) {
		return path.Base(full)
	}
	return source + full + fragment
}

// emptyHeads are the heads of columns that name nothing: to a screen reader, cells.
var emptyHeads = regexp.MustCompile(`<th([^>]*)></th>`)

var isPicture = regexp.MustCompile(`\.(svg|png)$`)

// pictures copies those of the documents.
func pictures(root, out string) error {
	entries, err := os.ReadDir(filepath.Join(root, "docs"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !isPicture.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, "docs", e.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, e.Name()), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
