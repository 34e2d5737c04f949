package main_test

import (
	"slices"
	"strings"
	"testing"
)

// TestBans has a limit ban two clients, and operators see and end it: a ban is no block, and
// what an operator gave a key stays when its ban ends.
func TestBans(t *testing.T) {
	onStores(t, func(t *testing.T, start func(...string) *running) {
		p := start("-c", writeFile(t, t.TempDir()+"/stint.yaml", `rules: [{name: login, key: [header.x-api-key], limits: ["3/1h ban 24h", "50 per day fixed_window"]}]`))
		says := func(line, want string) {
			t.Helper()
			if status, out, errs := p.stint(strings.Fields(line)...); status != 0 || !strings.Contains(out, want) {
				t.Errorf("%s: exit %d\n%s%s\nwant %q", line, status, out, errs, want)
			}
		}
		blocked := func(want ...string) {
			t.Helper()
			status, out, errs := p.stint("block", "list", "--json")
			var keys []string
			for _, one := range decode[[]struct{ Key, Why string }](t, out) {
				keys = append(keys, one.Key+" "+one.Why)
			}
			if status != 0 || !slices.Equal(keys, want) {
				t.Errorf("exit %d %s: %q, want %q", status, errs, keys, want)
			}
		}
		p.requests("anna", 3)
		p.requests("mallory", 5)
		p.requests("trudy", 4)
		blocked("mallory ban", "trudy ban")
		says("block list", "mallory: banned until ")
		says("inspect --header X-Api-Key=mallory", "DENIED login: ")
		says("inspect --header X-Api-Key=mallory", "Banned: everything is denied for")
		says("inspect --header X-Api-Key=anna", "3 of 3 used")
		says("block end mallory --rule login", "its ban has ended")
		says("inspect --header X-Api-Key=mallory", "3/1h ban 24h: 0 of 3 used")
		says("inspect --header X-Api-Key=mallory", "50/24h fixed_window: 3 of 50 used")
		says("reset login trudy", "as if never used")
		blocked()
		if status, out, errs := p.stint("block", "end", "anna", "--rule", "login"); status != 1 || !strings.Contains(errs, "not found") {
			t.Errorf("who is not banned: exit %d %s%s", status, out, errs)
		}
		p.requests("mallory", 3)
		says("inspect --header X-Api-Key=mallory", "3 of 3 used")
		if status, out, errs := p.stint("override", "set", "login", "mallory", "2/1h ban 48h"); status != 0 {
			t.Errorf("an override: exit %d %s%s", status, out, errs)
		}
		p.requests("mallory", 1)
		blocked("mallory ban")
		says("block end mallory --rule login", "its ban has ended")
		says("override get login mallory", "2/1h ban 48h")
		p.requests("trudy", 4)
		says("block trudy --rule login", "blocked")
		says("inspect --header X-Api-Key=trudy", "denied by a block")
		says("block end trudy --rule login", "its ban has ended")
		blocked()
	})
}
