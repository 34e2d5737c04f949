package rls_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/httplimit"
	"github.com/stint-dev/stint/internal/testkit/golden"

	"github.com/stint-dev/stint/service/rls"
)

// A transcript is cases: requests as JSON, one a line, and after ---- what is
// answered to each, at one moment unless a line says how long to wait. The
// first line may name options.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(err, "no transcripts")
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			golden.Play(t, name, "\n====\n", func(asked string) string { return replay(t, asked) })
		})
	}
}

func replay(t *testing.T, asked string) string {
	var out []string
	synctest.Test(t, func(t *testing.T) {
		lines := strings.Split(strings.TrimSpace(asked), "\n")
		s := service(t, options(lines[0]))
		for _, line := range lines {
			if strings.HasPrefix(line, "#") {
				continue
			}
			if after, ok := strings.CutPrefix(line, "wait "); ok {
				d, err := time.ParseDuration(after)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(d)
				continue
			}
			line, operator := strings.CutPrefix(line, "operator ")
			status, answer, err := s.JSON(t.Context(), []byte(line), operator)
			if err != nil {
				out = append(out, fmt.Sprint(status, " ", err))
				continue
			}
			var b bytes.Buffer
			if err := json.Compact(&b, answer); err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprint(status, " ", b.String()))
		}
	})
	return strings.Join(out, "\n")
}

func options(first string) (o rls.Options) {
	if !strings.HasPrefix(first, "#") {
		return o
	}
	o.RefuseLimits = strings.Contains(first, "overrides off")
	o.ClientsRefund = strings.Contains(first, "askers refund")
	if o.Headers = strings.Contains(first, "headers"); strings.Contains(first, "x-ratelimit") {
		o.Dialect = httplimit.XRateLimit
	}
	return o
}
