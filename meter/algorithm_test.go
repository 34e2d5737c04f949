package meter_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/meter"
)

// TestOneFileEach finds the kind of each algorithm in a file of its own.
func TestOneFileEach(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	at := make(map[string]string) // by the algorithm's name
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		ast.Inspect(parsed, func(n ast.Node) bool {
			if c, ok := n.(*ast.CompositeLit); ok && len(c.Elts) > 0 {
				if of, ok := c.Type.(*ast.Ident); ok && of.Name == "kind" {
					name := c.Elts[0].(*ast.KeyValueExpr).Value.(*ast.BasicLit).Value
					names = append(names, strings.Trim(name, `"`))
				}
			}
			return true
		})
		if len(names) > 1 {
			t.Errorf("%s has several algorithms: %v", file, names)
		}
		for _, name := range names {
			at[name] = file
		}
	}
	for _, a := range meter.Algorithms() {
		if at[a.String()] == "" {
			t.Errorf("%v has no file", a)
		}
	}
	if len(at) != len(meter.Algorithms()) {
		t.Errorf("%d algorithms are in files: %v; there are %d", len(at), at, len(meter.Algorithms()))
	}
}

// TestFacts holds what is said of each algorithm to what its arithmetic does.
func TestFacts(t *testing.T) {
	for _, a := range meter.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			if found, ok := meter.ParseAlgorithm(a.String()); found != a || !ok {
				t.Errorf("its name means %v, %v", found, ok)
			}
			plain := meter.Spec{Algorithm: a, Count: 5, Period: time.Second}
			for o, with := range map[meter.Option]func(*meter.Spec){
				meter.Burst:       func(s *meter.Spec) { s.Burst, s.BurstSet = 3, true },
				meter.Debt:        func(s *meter.Spec) { s.Debt = 3 },
				meter.Parts:       func(s *meter.Spec) { s.SubWindows = 3 },
				meter.Relaxed:     func(s *meter.Spec) { s.Relaxed = true },
				meter.CountDenied: func(s *meter.Spec) { s.CountDenied = true },
				meter.ByCalendar:  func(s *meter.Spec) { s.Period, s.Calendar, s.Zone = 0, meter.Day, "UTC" },
			} {
				s := plain
				with(&s)
				if err := s.Validate(); a.Takes(o) != (err == nil) {
					t.Errorf("takes %v: %v; %v", o, a.Takes(o), err)
				}
			}
			m, err := meter.New(plain)
			if err != nil {
				t.Fatal(err)
			}
			if m.Drains() != a.Takes(meter.Burst) || a.Takes(meter.Debt) != a.Takes(meter.Burst) {
				t.Errorf("drains %v, takes a burst %v, a debt %v", m.Drains(), a.Takes(meter.Burst), a.Takes(meter.Debt))
			}
			now := int64(1000 * time.Second)
			state := make([]uint64, m.Words()+8)
			if !m.Idle(state, now) {
				t.Error("a state of zeros is not that of an unseen key")
			}
			for range m.Capacity() {
				now++
				if _, ok := m.Take(state, now, 1); !ok {
					t.Error("what it has room for is denied")
				}
			}
			if grows := m.Room(state, now+1, 1) > m.Words(); grows != a.KeepsLog() {
				t.Errorf("keeps a log %v, needs room %v", a.KeepsLog(), grows)
			}
			if late := m.Delay(state, now, 1) > 0; late != a.Queues() {
				t.Errorf("queues %v, delays %v", a.Queues(), late)
			}
			if a.Evenly() != m.Admits(state, now+int64(time.Second/5), 1) {
				t.Errorf("evenly %v: it has room for one after a fifth of the period, or has not", a.Evenly())
			}
			if end := now + int64(m.Longest()); !m.Check(state) || !m.Idle(state, end) {
				t.Errorf("%v after the last charge, the state is not idle: %v", m.Longest(), state)
			}
		})
	}
}
