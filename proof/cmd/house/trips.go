package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const module = "github.com/stint-dev/stint/"

// A trip is one call through the house, and how many of its files it may touch.
type trip struct {
	name string
	most int
	run  func(top, bin, covers string) error
	pkg  string // of the program, from the top
}

var allTrips = []trip{
	{"an HTTP request under a policy, in memory", 12, program, "./proof/cmd/house/trip/http"},
	{"a strict decision in Redis", 9, program, "./proof/cmd/house/trip/redis"},
	{"a boot of stint serve, and its end", 15, boot, "./cmd/stint"},
}

// trips prints the files that each trip runs through. A program that makes one
// call is built with coverage and clears the counters right before the call.
func trips(w io.Writer, top string) error {
	scratch, err := os.MkdirTemp("", "trips")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	for i, t := range allTrips {
		bin := filepath.Join(scratch, fmt.Sprint("trip", i))
		covers := bin + ".covers"
		if err := os.Mkdir(covers, 0o700); err != nil {
			return err
		}
		build := exec.Command("go", "build", "-cover", "-covermode=atomic", "-coverpkg="+module+"...", "-o", bin, t.pkg)
		build.Dir, build.Stderr = top, os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("building %s: %w", t.pkg, err)
		}
		if err := t.run(top, bin, covers); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		files, err := touched(covers)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s: %d files, at most %d\n", t.name, len(files), t.most)
		for _, file := range files {
			fmt.Fprintln(w, "   ", file)
		}
	}
	return nil
}

// program runs a program that writes its own counters.
func program(_, bin, covers string) error {
	cmd := exec.Command(bin, covers)
	cmd.Env = append(os.Environ(), "GOCOVERDIR="+covers+".rest")
	cmd.Stderr = os.Stderr
	if err := os.Mkdir(covers+".rest", 0o700); err != nil {
		return err
	}
	return cmd.Run()
}

// boot starts stint serve, waits until it is ready, and stops it.
func boot(_, bin, covers string) error {
	rules := bin + ".yaml"
	if err := os.WriteFile(rules, []byte("rules: [{name: site, key: [ip], limits: [10/s]}]\n"), 0o600); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	at := l.Addr().String()
	l.Close()
	cmd := exec.Command(bin, "serve", "-c", rules, "--http", at)
	cmd.Env = append(os.Environ(), "GOCOVERDIR="+covers)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	for ctx.Err() == nil {
		if c, err := net.Dial("tcp", at); err == nil {
			c.Close()
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return cmd.Wait()
}

// touched returns the files of the house with a counter above 0.
func touched(covers string) ([]string, error) {
	text, err := output("go", "tool", "covdata", "textfmt", "-i="+covers, "-o=/dev/stdout")
	if err != nil {
		return nil, err
	}
	var files []string
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		line := s.Text()
		if strings.HasSuffix(line, " 0") || strings.HasPrefix(line, "mode:") {
			continue
		}
		file, _, _ := strings.Cut(strings.TrimPrefix(line, module), ":")
		if !strings.Contains(file, "cmd/house/trip/") {
			files = append(files, file)
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}
