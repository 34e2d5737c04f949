package main_test

import (
	"context"
	"strings"
	"testing"
	"time"

	main "github.com/stint-dev/stint/cmd/stint"
)

// TestCheckTags has store check find processes whose keys lie under other tags:
// stint would not start beside them, and does not.
func TestCheckTags(t *testing.T) {
	redis := startRedis(t, "")
	if _, err := redis.command("SET stint::tags 64"); err != nil {
		t.Fatal(err)
	}
	bounded, cancel := context.WithTimeout(t.Context(), time.Minute) // serve would go on
	defer cancel()
	for _, args := range [][]string{
		{"store", "check", "redis://" + redis.address, "--samples", "1"},
		{"serve", "--limit", "5/s", "--http", "127.0.0.1:0", "--store", "redis://" + redis.address},
	} {
		var out, errs strings.Builder
		if status := main.Run(bounded, args, strings.NewReader(""), &out, &errs); status != 1 {
			t.Errorf("%v: status %d", args, status)
		}
		if text := strings.Join(strings.Fields(out.String()+errs.String()), " "); !strings.Contains(text, "64") || !strings.Contains(text, "delete the key stint::tags") {
			t.Errorf("%v: does not say what is wrong: %s", args, text)
		}
	}
}
