package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A wing is a part of the house that is counted by itself. Its folders are
// matched by prefix, the first wing that fits counts.
type wing struct {
	name    string
	proper  bool // part of the limiter proper
	folders []string
}

var wings = []wing{
	// Four commands read flags for the planner, and nothing else.
	{"planner, lab", false, []string{"cmd/internal/planner/", "cmd/internal/tempstore/", "cmd/stint/plan.go", "cmd/stint/simulate", "cmd/stint/lab.go", "cmd/stint/size.go"}},
	{"proof", false, []string{"proof/"}},
	{"harness", false, []string{"storetest/", "simulate/", "redisstore/internal/faulttest/", "internal/redistest/", "internal/freeport/", "rulesdb/dbtest/", "cmd/internal/browser/", "cmd/internal/leaktest/", "cmd/stint/trip.go"}},
	{"benchmarks", false, []string{"benchmarks/", "internal/machine/", "cmd/internal/service/servicebench/", "cmd/internal/service/operatebench/", "cmd/internal/service/rulesbench/"}},
	// Package dashboard writes files of deploy and docs; no program that is shipped has it.
	{"release, site", false, []string{"release/", "site/", "cmd/internal/service/dashboard/"}},
	{"service, command", true, []string{"cmd/"}},
	{"redis", true, []string{"redisstore/", "fallback/", "failover/"}},
	{"rules", true, []string{"policy/", "rulesource/", "rulesdb/", "internal/overridetable/"}},
	{"middleware", true, []string{"httplimit/", "grpclimit/", "otellimit/", "adapters/"}},
	{"memory", true, []string{"memstore/"}},
	{"engine", true, []string{""}},
}

// lines prints how many lines of code each wing has, without comments, blank
// lines, tests and generated files.
func lines(w io.Writer, top string) error {
	files, err := output("git", "-C", top, "ls-files", "*.go")
	if err != nil {
		return err
	}
	count := make(map[string]int)
	for file := range strings.SplitSeq(files, "\n") {
		if strings.HasSuffix(file, "_test.go") || strings.Contains(file, "/testdata/") {
			continue
		}
		src, err := os.ReadFile(filepath.Join(top, file))
		if err != nil {
			return err
		}
		n := codeLines(src)
		i := slices.IndexFunc(wings, func(g wing) bool {
			return slices.ContainsFunc(g.folders, func(p string) bool { return strings.HasPrefix(file, p) })
		})
		count[wings[i].name] += n
	}
	proper := 0
	for _, g := range wings {
		mark := ""
		if g.proper {
			proper += count[g.name]
			mark = "  limiter proper"
		}
		fmt.Fprintf(w, "%-18s %6d%s\n", g.name, count[g.name], mark)
	}
	fmt.Fprintf(w, "%-18s %6d\n", "limiter proper", proper)
	return nil
}

// generated is the line that a generator writes above its code.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// codeLines counts the lines of a Go file that hold a token; none of one that was
// generated.
func codeLines(src []byte) int {
	if generated.Match(src) {
		return 0
	}
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	n, last := 0, 0
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return n
		}
		if tok == token.SEMICOLON && text == "\n" {
			continue
		}
		first := file.Line(pos)
		end := first + strings.Count(text, "\n")
		n += end - max(first, last+1) + 1
		last = end
	}
}
