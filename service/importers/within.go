package importers

import (
	"regexp/syntax"
	"slices"
	"unicode"
)

// mostStates bounds how many states Within examines.
const mostStates = 5000

// A state is the state of all machines after a character.
type state struct {
	at     [][]uint32 // the instructions that each machine is at
	before rune       // the character, or another of its kind; -1 at the beginning
}

func (s *state) key() string {
	key := []byte{byte(s.before)}
	for _, at := range s.at {
		for _, pc := range at {
			key = append(key, byte(pc), byte(pc>>8), 0)
		}
		key = append(key, 0, 0, 1)
	}
	return string(key)
}

// A Before is an expression for a text with something behind it.
type Before struct{ Expr, Behind string }

// Within reports whether each text that matches all of some expressions matches other too. It
// is false as well if it cannot parse an expression, or would have to examine too many states.
func Within(all []string, other string) bool {
	texts := make([]Before, len(all))
	for i, expr := range all {
		texts[i].Expr = expr
	}
	return WithinBefore(texts, Before{Expr: other})
}

// WithinBefore is [Within], where each expression has its own text behind what is matched.
func WithinBefore(all []Before, other Before) bool {
	texts := append(slices.Clone(all), other)
	var machines []*syntax.Prog
	for _, one := range texts {
		re, err := syntax.Parse(`(?s:.*)(?:`+one.Expr+`)(?s:.*)`, syntax.Perl)
		if err != nil {
			return false
		}
		p, err := syntax.Compile(re.Simplify())
		if err != nil {
			return false
		}
		machines = append(machines, p)
	}
	begin := state{before: -1}
	for _, p := range machines {
		begin.at = append(begin.at, []uint32{uint32(p.Start)})
	}
	runes, seen := representatives(machines), map[string]bool{}
	for todo := []state{begin}; len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		differs := true
		for i, p := range machines {
			differs = differs && ends(p, s.at[i], s.before, texts[i].Behind) == (i < len(all))
		}
		if differs {
			return false
		}
		for _, r := range runes {
			next := state{before: ' '}
			for i, p := range machines {
				at, _ := advance(p, s.at[i], s.before, r)
				next.at = append(next.at, at)
			}
			if syntax.IsWordChar(r) {
				next.before = 'a'
			}
			key := next.key()
			if seen[key] || slices.ContainsFunc(next.at[:len(all)], func(at []uint32) bool { return len(at) == 0 }) {
				continue
			}
			if seen[key] = true; len(seen) > mostStates {
				return false
			}
			todo = append(todo, next)
		}
	}
	return true
}

// ends reports whether a machine matches with a text behind what it has read.
func ends(p *syntax.Prog, at []uint32, before rune, behind string) bool {
	for _, r := range behind {
		at, _ = advance(p, at, before, r)
		before = r
	}
	_, ends := advance(p, at, before, -1)
	return ends
}

// advance moves a machine over the character now, or to the end if it is -1; before is the
// character before it.
func advance(p *syntax.Prog, at []uint32, before, now rune) (next []uint32, ends bool) {
	seen := make([]bool, len(p.Inst))
	for todo := slices.Clone(at); len(todo) > 0; {
		pc := todo[len(todo)-1]
		if todo = todo[:len(todo)-1]; seen[pc] {
			continue
		}
		seen[pc] = true
		switch inst := &p.Inst[pc]; inst.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			todo = append(todo, inst.Out, inst.Arg)
		case syntax.InstCapture, syntax.InstNop:
			todo = append(todo, inst.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(inst.Arg)&^syntax.EmptyOpContext(before, now) == 0 {
				todo = append(todo, inst.Out)
			}
		case syntax.InstMatch:
			ends = now < 0
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			if now >= 0 && inst.MatchRune(now) {
				next = append(next, inst.Out)
			}
		}
	}
	slices.Sort(next)
	return slices.Compact(next), ends
}

// representatives returns one character of each kind that the machines tell apart.
func representatives(all []*syntax.Prog) []rune {
	runes := []rune{0, '0', '9' + 1, 'A', 'Z' + 1, '_', '_' + 1, 'a', 'z' + 1} // for \b
	for _, p := range all {
		for _, inst := range p.Inst {
			for _, r := range inst.Rune {
				runes = append(runes, r, r+1)
				for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
					runes = append(runes, f, f+1)
				}
			}
		}
	}
	slices.Sort(runes)
	return slices.Compact(runes)
}
