package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// listed is how many packages the list of sizes has.
const listed = 25

// marker is more than any symbol has: what nm says is larger marks a section.
const marker = 10 << 20

// sizes prints which packages take the room of a binary that is not stripped: code
// and data that have a name. The tables for stack traces, which go by the number
// of functions, are not among them.
func sizes(ctx context.Context, w io.Writer, binary string) error {
	table, err := command(ctx, ".", nil, "go", "tool", "nm", "-size", binary)
	if err != nil {
		return err
	}
	of := make(map[string]int64)
	for s := bufio.NewScanner(strings.NewReader(table)); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 4 || fields[2] == "U" || fields[2] == "u" {
			continue
		}
		size, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil || size > marker || !strings.ContainsAny(fields[2], "TtRrDd") {
			continue
		}
		of[owner(fields[3])] += size
	}
	names := make([]string, 0, len(of))
	for name := range of {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return int(of[b] - of[a]) })
	for _, name := range names[:min(listed, len(names))] {
		if _, err := fmt.Fprintf(w, "%8.2f MB  %s\n", float64(of[name])/1e6, name); err != nil {
			return err
		}
	}
	return nil
}

// owner returns the module of a symbol, as far as its path shows it.
func owner(symbol string) string {
	if strings.HasPrefix(symbol, "go:") || strings.HasPrefix(symbol, "type:") {
		return "types and strings"
	}
	if i := strings.IndexAny(symbol, "[("); i >= 0 {
		symbol = symbol[:i]
	}
	slash := strings.LastIndexByte(symbol, '/') + 1
	name, _, _ := strings.Cut(symbol[slash:], ".")
	parts := strings.Split(symbol[:slash]+name, "/")
	if !strings.Contains(parts[0], ".") {
		return parts[0]
	}
	return strings.Join(parts[:min(3, len(parts))], "/")
}
