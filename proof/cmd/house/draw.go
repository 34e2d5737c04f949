package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A room is a package of this repository: what of them it imports, and the
// level that it is on, above everything that it imports.
type room struct {
	name    string
	imports []string
	level   int
	x, y    int
}

// draw writes rooms.svg, the packages and their imports, and readers.svg, who
// reads rules from where.
func draw(top, dir string) error {
	rooms, err := readRooms(top)
	if err != nil {
		return err
	}
	grants, err := readGrants(top)
	if err != nil {
		return err
	}
	for name, picture := range map[string]func(io.Writer) error{
		"rooms.svg":   func(w io.Writer) error { return drawRooms(w, rooms) },
		"readers.svg": func(w io.Writer) error { return drawReaders(w, grants) },
	} {
		var b bytes.Buffer
		if err := picture(&b); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// readRooms asks the go command for the packages of every module.
func readRooms(top string) (map[string]*room, error) {
	list := exec.Command("go", "list", "-json=ImportPath,Imports,GoFiles", "work")
	list.Dir, list.Stderr = top, os.Stderr
	out, err := list.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := list.Start(); err != nil {
		return nil, err
	}
	rooms := make(map[string]*room)
	for d := json.NewDecoder(out); ; {
		var p struct {
			ImportPath       string
			Imports, GoFiles []string
		}
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		name := roomOf(p.ImportPath)
		if len(p.GoFiles) == 0 || beside(name) {
			continue
		}
		r := rooms[name]
		if r == nil {
			r = &room{name: name}
			rooms[name] = r
		}
		for _, i := range p.Imports {
			if strings.HasPrefix(i+"/", module) && roomOf(i) != name && !beside(roomOf(i)) {
				r.imports = append(r.imports, roomOf(i))
			}
		}
	}
	for _, r := range rooms {
		slices.Sort(r.imports)
		r.imports = slices.Compact(r.imports)
	}
	return rooms, list.Wait()
}

func roomOf(path string) string {
	if name, below := strings.CutPrefix(path, module); below {
		return name
	}
	return "stint"
}

// beside reports whether a package only looks at the house: tests, figures.
func beside(name string) bool {
	for _, p := range []string{"proof", "benchmarks", "storetest", "cmd/internal/service/servicebench", "redisstore/internal/faulttest", "internal/redistest", "internal/freeport"} {
		if name == p || strings.HasPrefix(name, p+"/") {
			return true
		}
	}
	return strings.Contains(name, "/bench") || strings.HasSuffix(name, "/sample")
}

// levelOf sets the level of a room and of all below it.
func levelOf(rooms map[string]*room, r *room) int {
	if r.level == 0 {
		r.level = 1
		for _, i := range r.imports {
			r.level = max(r.level, levelOf(rooms, rooms[i])+1)
		}
	}
	return r.level
}

const (
	roomWidth, roomHeight = 118, 30
	columnGap, levelGap   = 14, 46
	margin                = 16
)

// drawRooms draws a row for each level, the lowest at the bottom. Only arrows
// to rooms that no other import already leads to are drawn: the others follow.
func drawRooms(w io.Writer, rooms map[string]*room) error {
	levels := [][]*room{}
	names := make([]string, 0, len(rooms))
	for name := range rooms {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for f := levelOf(rooms, rooms[name]); len(levels) < f; {
			levels = append(levels, nil)
		}
		f := rooms[name].level - 1
		levels[f] = append(levels[f], rooms[name])
	}
	widest := 0
	for _, f := range levels {
		widest = max(widest, len(f))
	}
	width := 2*margin + widest*(roomWidth+columnGap)
	height := 2*margin + len(levels)*(roomHeight+levelGap) - levelGap
	for i, f := range levels {
		left := (width - len(f)*(roomWidth+columnGap) + columnGap) / 2
		for j, r := range f {
			r.x, r.y = left+j*(roomWidth+columnGap), height-margin-roomHeight-i*(roomHeight+levelGap)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="11">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	for _, name := range names {
		r := rooms[name]
		for _, i := range r.imports {
			if to := rooms[i]; !follows(rooms, r, to) {
				fmt.Fprintf(&b, `<path d="M%d %d C%d %d %d %d %d %d" fill="none" stroke="#9aa5b1"/>`+"\n",
					r.x+roomWidth/2, r.y+roomHeight, r.x+roomWidth/2, r.y+roomHeight+24, to.x+roomWidth/2, to.y-24, to.x+roomWidth/2, to.y)
			}
		}
	}
	for _, name := range names {
		r := rooms[name]
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="%s" stroke="#52606d"/>`, r.x, r.y, roomWidth, roomHeight, colour(name))
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle" fill="#1f2933">%s</text>`+"\n", r.x+roomWidth/2, r.y+roomHeight/2+4, html.EscapeString(short(name)))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// follows reports whether another import of r leads to the same room.
func follows(rooms map[string]*room, r, to *room) bool {
	for _, i := range r.imports {
		if rooms[i] != to && reaches(rooms, rooms[i], to) {
			return true
		}
	}
	return false
}

func reaches(rooms map[string]*room, from, to *room) bool {
	for _, i := range from.imports {
		if rooms[i] == to || reaches(rooms, rooms[i], to) {
			return true
		}
	}
	return false
}

func colour(name string) string {
	switch {
	case strings.HasPrefix(name, "cmd"):
		return "#e3f8ff"
	case strings.HasPrefix(name, "redisstore"):
		return "#ffe3ec"
	case name == "stint" || name == "memstore" || strings.HasPrefix(name, "internal") || name == "meter":
		return "#fffbea"
	}
	return "#f0f4f8"
}

// short drops what every room of a wing has in front.
func short(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, "cmd/internal/"), "redisstore/internal/")
}
