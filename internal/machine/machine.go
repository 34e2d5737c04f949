// Package machine says what a benchmark ran on and beside, for its report.
package machine

import (
	"bufio"
	"os"
	"runtime/debug"
	"strings"
)

// Versions returns path and version of each module in the program whose path
// contains one of parts.
func Versions(parts ...string) (list []string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, m := range info.Deps {
		for _, part := range parts {
			if strings.Contains(m.Path, part) {
				list = append(list, m.Path+" "+m.Version)
			}
		}
	}
	return list
}

// Processor returns the processor's name, where the system reports it.
func Processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "an unnamed processor"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return "an unnamed processor"
}

// Load returns the load averages, where the system reports them: figures of a
// machine that is not idle are doubtful.
func Load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(text)); err == nil && len(fields) >= 3 {
		return strings.Join(fields[:3], " ")
	}
	return "unknown"
}
