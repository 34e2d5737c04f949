package main_test

import (
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestWhereKeysStand looks for a client's key in all that both programs write: it
// stands in clear in the state file alone, which its owner alone may read.
func TestWhereKeysStand(t *testing.T) {
	const key = "a-customer-of-ours-and-no-other"
	onBoth(t, func(t *testing.T, start func(...string) *running) {
		dir := t.TempDir()
		state, snapshot, token := dir+"/acts", dir+"/snapshot", "0123456789-token-of-an-operator"
		p := start("-c", writeFile(t, dir+"/stint.yaml", operateRules), "--state", state, "--snapshot", snapshot,
			"--operator-token-file", writeFile(t, dir+"/tokens", token+"\n"))
		operator := map[string]string{"Authorization": "Bearer " + token}
		if n := p.requests(key, 6); n != 4 {
			t.Fatalf("%d passed, want 4", n)
		}
		if status, body := p.call(http.MethodPut, p.admin+"/v1/block?rule=orders&key="+key, `{"for":"1h"}`, operator); status != http.StatusOK {
			t.Fatalf("a block: %d %s", status, body)
		}
		for _, one := range []struct {
			path    string
			headers map[string]string
			shown   bool
		}{{"/metrics", operator, false}, {"/v1/top", nil, false}, {"/v1/top", operator, true}} {
			if status, body := p.call(http.MethodGet, p.admin+one.path, "", one.headers); status != http.StatusOK || strings.Contains(body, key) != one.shown {
				t.Errorf("%s %v: %d %s", one.path, one.headers, status, body)
			}
		}
		if err := p.end(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if strings.Contains(p.log(), key) {
			t.Error("the log has the key")
		}
		for path, shown := range map[string]bool{state: true, snapshot: false} {
			text, err := os.ReadFile(path)
			if err != nil || strings.Contains(string(text), key) && !shown {
				t.Errorf("%s: %v, or it has the key", path, err)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v %v", path, info.Mode(), err)
			}
		}
	})
}
