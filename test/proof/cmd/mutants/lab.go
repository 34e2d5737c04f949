package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A stage is tests that a bug has to survive. It sees bugs in files under one
// of its places; those without are for the files that no other stage has. A bug
// in the command, the service or the planner meets the tests of its own package.
type stage struct {
	dir    string
	args   []string
	places []string
}

// stages are in order: those that are quick and see most first.
var stages = []stage{
	{"test/proof", []string{".", "-short", "-skip", "^Test(DifferentialRedis|EnvelopeEntries|EnvelopeListeners)", "-rapid.checks=4000", "-rapid.nofailfile"}, nil},
	{".", []string{".", "./meter", "./memstore", "./simulate", "-short"}, nil},
	{".", []string{"./storetest", "-short"}, nil},
	{"test/proof", []string{".", "-run", "^TestDifferential$", "-rapid.checks=20000", "-rapid.nofailfile"}, nil},
	{"test/proof", []string{".", "-run", "^TestEnvelopeEntries$", "-short"}, nil},

	{".", []string{"./fallback", "./policy/...", "-short"}, []string{"fallback/", "policy/"}},
	{".", []string{"./httplimit", "-short"}, []string{"httplimit/"}},
	{".", []string{"./internal/...", ".", "./policy", "./httplimit", "-short"}, []string{"internal/"}},

	{"redisstore", []string{".", "-run", "^TestLongLog", "-short"}, []string{"redisstore/lua/fastpath_log.lua", "redisstore/lua/log.lua"}},
	{"redisstore", []string{".", "-run", "^Test(Breaker|ProbePatience|NoClientTime|Time|DenialWritesNothing|Errors|Replies|Boot|Faults|DeniedElsewhere|ResetApart)$"}, []string{"redisstore/"}},
	{"redisstore", []string{".", "-run", "^Test(Lease(Envelope|Ends|Newcomer|Changed|Hold)|Async|ClockStep(Leases|Expiry)|DenialCache|Modes|Overflow|Version)"}, []string{"redisstore/"}},
	{"redisstore", []string{".", "-run", "^Test(Store|Differential)$"}, []string{"redisstore/"}},
	{"test/proof", []string{".", "-run", "^TestDifferentialRedis", "-rapid.nofailfile"}, []string{"redisstore/"}},
}

// stagesOf returns the stages that see bugs in these files, all for none.
func stagesOf(files ...string) (of []stage) {
	if len(files) == 0 {
		return stages
	}
	for _, file := range files {
		var own, rest []stage
		for _, s := range stages {
			switch {
			case len(s.places) == 0:
				rest = append(rest, s)
			case slices.ContainsFunc(s.places, func(place string) bool { return strings.HasPrefix(file, place) }):
				own = append(own, s)
			}
		}
		switch room, _, _ := strings.Cut(file, "/"); {
		case room == "cmd" || room == "planner" || room == "service":
			own = []stage{{".", []string{"./" + path.Dir(file), "-short"}, nil}}
		case own == nil:
			own = rest
		}
		for _, s := range own {
			if !slices.ContainsFunc(of, func(o stage) bool { return slices.Equal(o.args, s.args) }) {
				of = append(of, s)
			}
		}
	}
	return of
}

// A lab is a copy of the sources in which bugs are planted.
type lab struct {
	dir   string
	limit time.Duration
}

func newLab(root string, limit time.Duration) (*lab, error) {
	dir, err := os.MkdirTemp("", "stint-mutants-")
	if err != nil {
		return nil, err
	}
	l := &lab{dir, limit}
	if err := l.fill(root); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *lab) close() { _ = os.RemoveAll(l.dir) }

// fill copies the sources, all but the history.
func (l *lab) fill(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case name == ".git": // a directory, or a file in a work tree
			continue
		case entry.IsDir():
			err = os.CopyFS(filepath.Join(l.dir, name), os.DirFS(filepath.Join(root, name)))
		default:
			err = copyFile(root, l.dir, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to, name string) error {
	text, err := os.ReadFile(filepath.Join(from, name))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, name), text, 0o644)
}

// plant applies a bug, tests, and takes the bug out again. The test that killed
// the bug last time goes first. Before tests judge, sound has to say that they
// pass without any bug.
func (l *lab) plant(b bug, sound func(stage) error) (v verdict, err error) {
	patch, err := filepath.Abs(b.path)
	if err != nil {
		return v, err
	}
	if out, err := l.command(".", "git", "apply", "-p1", patch); err != nil {
		return v, fmt.Errorf("the patch no longer applies: %s", out)
	}
	defer func() {
		if out, undo := l.command(".", "git", "apply", "-p1", "-R", patch); undo != nil {
			err = fmt.Errorf("the patch cannot be taken out: %s", out)
		}
	}()
	if b.last.dir != "" && sound(b.last) == nil {
		if v, err := l.test([]stage{b.last}); v.failed || err != nil {
			return v, err
		}
	}
	for _, s := range stagesOf(b.files...) {
		if err := sound(s); err != nil {
			return v, err
		}
		if v, err := l.test([]stage{s}); v.failed || err != nil {
			return v, err
		}
	}
	return v, nil
}

// A verdict says whether a test failed, and which: by alone, the stage of that
// test and no other.
type verdict struct {
	failed bool
	killer string
	output string
	alone  stage
	took   time.Duration
	wrong  error // why tests cannot judge
}

// judge plants a bug; the killer of one that survives or that cannot be planted
// says so.
func (l *lab) judge(b bug, sound func(stage) error) verdict {
	start := time.Now()
	v, err := l.plant(b, sound)
	switch {
	case errors.Is(err, errFails):
		v = verdict{wrong: err, killer: "**" + firstLine(err.Error()) + "**"}
	case err != nil:
		v = verdict{killer: "**" + firstLine(err.Error()) + "**"}
	case !v.failed:
		v.killer = "**survives**"
	}
	v.took = time.Since(start)
	return v
}

var errFails = errors.New("tests fail without any bug")

// passes says whether tests pass, where no bug is planted.
func (l *lab) passes(stages []stage) error {
	v, err := l.test(stages)
	if err != nil {
		return err
	}
	if v.failed {
		return fmt.Errorf("%w: %s\n%s", errFails, v.killer, v.output)
	}
	return nil
}

// test runs stages until one fails.
func (l *lab) test(stages []stage) (verdict, error) {
	for _, stage := range stages {
		args := []string{"test", "-count=1", "-failfast", "-vet=off", "-timeout=" + l.limit.String()}
		out, err := l.command(stage.dir, "go", append(args, stage.args...)...)
		if err == nil {
			continue
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return verdict{}, err
		}
		v := verdict{failed: true, killer: killer(out), output: out}
		if v.killer == "" || notBuilt.MatchString(out) {
			return verdict{}, fmt.Errorf("%s: the tests do not run: %s", stage.dir, out)
		}
		hangs := strings.Contains(out, "panic: test timed out")
		v.alone = stage.only(v.killer, hangs)
		if hangs {
			v.killer += ", which hangs"
		}
		return v, nil
	}
	return verdict{}, nil
}

// command runs a program in a directory of the lab, which is no repository: git
// must not look for one above it.
func (l *lab) command(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = filepath.Join(l.dir, dir)
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(l.dir), "STINT_MUTANT=1", "GOFLAGS=-trimpath")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

var (
	failedTest  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	running     = regexp.MustCompile(`running tests:\n\s+(\S+)`)
	panicked    = regexp.MustCompile(`(?m)^(?:panic|fatal error): (.*)$`)
	notBuilt    = regexp.MustCompile(`(?m)^FAIL\s+\S+ \[(?:build|setup) failed\]`)
	failPackage = regexp.MustCompile(`(?m)^FAIL\s+github\.com/stint-dev/stint/?(\S*)`)
)

// killer returns the name of the test that failed, with its package.
func killer(out string) string {
	where := "stint"
	if m := failPackage.FindStringSubmatch(out); m != nil && m[1] != "" {
		where = m[1]
	}
	for _, re := range []*regexp.Regexp{failedTest, running} {
		if all := re.FindAllStringSubmatch(out, -1); len(all) > 0 {
			name := all[0][1]
			if len(all) > 1 && strings.HasPrefix(all[1][1], name+"/") {
				name = all[1][1]
			}
			return where + " " + name
		}
	}
	if m := panicked.FindStringSubmatch(out); m != nil {
		return where + ": panic: " + m[1]
	}
	return ""
}

// only returns the stage with nothing but the test that killed, or one without a
// directory where that is not known.
func (s stage) only(killer string, hangs bool) stage {
	where, test, ok := strings.Cut(killer, " ")
	if !ok || strings.HasSuffix(where, ":") {
		return stage{}
	}
	if where == "stint" {
		where = "."
	}
	in, err := filepath.Rel(s.dir, where)
	if err != nil {
		return stage{}
	}
	if in != "." {
		in = "./" + filepath.ToSlash(in)
	}
	test, _, _ = strings.Cut(test, "/")
	args := []string{in, "-run", "^" + test + "$"}
	for i := 0; i < len(s.args); i++ {
		switch arg := s.args[i]; {
		case arg == "-run" || arg == "-skip":
			i++
		case strings.HasPrefix(arg, "-"):
			args = append(args, arg)
		}
	}
	if hangs {
		args = append(args, "-timeout=1m")
	}
	return stage{dir: s.dir, args: args}
}
