package main

import (
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A grant is what one user of a database may do with one of its tables.
type grant struct{ user, table, may string }

// readGrants returns what docs/RULES-DB.md has users of PostgreSQL granted: a
// test of package rulesdb runs the same statements, and holds both users to them.
func readGrants(top string) ([]grant, error) {
	page, err := os.ReadFile(filepath.Join(top, "docs", "RULES-DB.md"))
	if err != nil {
		return nil, err
	}
	var all []grant
	statement := regexp.MustCompile(`GRANT ([A-Z, ]+) ON (stint_[a-z_, ]+) TO (\w+);`)
	for _, m := range statement.FindAllStringSubmatch(string(page), -1) {
		for table := range strings.SplitSeq(m[2], ", ") {
			all = append(all, grant{m[3], strings.TrimPrefix(table, "stint_"), m[1]})
		}
	}
	return all, nil
}

// tables returns the tables that a user may do one of some things with, in order.
func tables(all []grant, user string, may ...string) string {
	var names []string
	for _, g := range all {
		for _, what := range may {
			if g.user == user && strings.Contains(g.may, what) && g.table != "schema" {
				names = append(names, g.table)
			}
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// A place is a box of the picture.
type place struct {
	x, y, width, height int
	fill                string
	lines               []string // the first is its name
}

// A flow is an arrow between two sides of places: what is read or written.
type flow struct {
	path   string
	x, y   int // of the text
	anchor string
	text   []string
}

// drawReaders draws who reads rules, overrides and plans from where.
func drawReaders(w io.Writer, all []grant) error {
	const command, store, server = "#e3f8ff", "#ffe3ec", "#fffbea"
	places := []place{
		{16, 16, 250, 66, command, []string{"stint rules, override, block,", "plan, token, db  --rules URL", "--author NAME"}},
		{16, 112, 250, 66, command, []string{"operators' API and page", "stint … --server, a browser;", "roles by token"}},
		{400, 16, 220, 162, store, []string{"database of rules", "PostgreSQL, MySQL, MariaDB,", "SQLite", "", "one version row;", "revisions, overrides, plans,", "tokens, nodes, audit, leases"}},
		{400, 330, 220, 50, command, []string{"stint worker  --from --to", "one works, by a lease"}},
		{400, 470, 220, 66, store, []string{"Redis, or a directory", "what was published:", "rules, overrides, plans"}},
		{16, 250, 250, 82, server, []string{"stint serve, stint proxy", "--rules of a database", "all in memory, indexed", "last good copy on the disk"}},
		{16, 454, 250, 82, server, []string{"stint serve, stint proxy", "--rules redis://… or dir:…", "all in memory, indexed", "last good copy on the disk"}},
		{16, 600, 250, 34, command, []string{"requests"}},
	}
	flows := []flow{
		{"M266 49 H396", 331, 42, "middle", []string{"one transaction"}},
		{"M141 250 V182", 150, 206, "start", []string{"at --admin of these"}},
		{"M266 145 H396", 331, 138, "middle", []string{"checked, then written"}},
		{"M430 178 V291 H270", 420, 212, "end", []string{"read: " + firstHalf(tables(all, "stint_node", "SELECT"))[0], firstHalf(tables(all, "stint_node", "SELECT"))[1], "write: " + tables(all, "stint_node", "INSERT")}},
		{"M560 178 V326", 568, 232, "start", []string{"reads what servers read;", "writes: " + firstHalf(tables(all, "stint_worker", "INSERT"))[0], "removes what is old"}},
		{"M510 380 V466", 518, 428, "start", []string{"publishes what is new,", "checked and whole"}},
		{"M400 503 H270", 335, 496, "middle", []string{"read all, then changes"}},
		{"M141 600 V540", 150, 574, "start", []string{"decided from memory alone"}},
		{"M16 617 H8 V291 H12", 0, 0, "start", nil},
	}
	var b strings.Builder
	b.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 650" font-family="system-ui, sans-serif" font-size="12">` + "\n")
	b.WriteString(`<defs><marker id="to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="#52606d"/></marker></defs>` + "\n")
	b.WriteString(`<rect width="760" height="650" fill="#fff"/>` + "\n")
	for _, f := range flows {
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="#52606d" marker-end="url(#to)"/>`+"\n", f.path)
		for i, line := range f.text {
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="%s" font-size="11" fill="#3e4c59">%s</text>`+"\n", f.x, f.y+15*i, f.anchor, html.EscapeString(line))
		}
	}
	for _, p := range places {
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="%s" stroke="#52606d"/>`+"\n", p.x, p.y, p.width, p.height, p.fill)
		for i, line := range p.lines {
			weight := "normal"
			if i == 0 {
				weight = "bold"
			}
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle" font-weight="%s" fill="#1f2933">%s</text>`+"\n", p.x+p.width/2, p.y+21+16*i, weight, html.EscapeString(line))
		}
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// firstHalf breaks a list that is too long for one line.
func firstHalf(list string) [2]string {
	names := strings.Split(list, ", ")
	if len(names) < 4 {
		return [2]string{list, ""}
	}
	half := len(names) / 2
	return [2]string{strings.Join(names[:half], ", ") + ",", strings.Join(names[half:], ", ")}
}
