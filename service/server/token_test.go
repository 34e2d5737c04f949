package server_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/service/server"
)

// hashed returns the line of a token.
func hashed(token, rest string) string {
	sum := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(sum[:]) + " " + rest + "\n"
}

const (
	anna  = "anna-0123456789abcdef"
	bruno = "bruno-0123456789abcdef"
)

// TestTokenHolders reads files of tokens and of their holders, good and bad. No error
// shows what is in them.
func TestTokenHolders(t *testing.T) {
	for _, one := range []struct {
		text string
		line int // of anna's token
		role string
		want string
	}{
		{text: hashed(anna, "name=anna role=admin"), line: 1, role: "admin"},
		{text: hashed(anna, "role=viewer made=2020-01-01T00:00:00Z until=2999-01-01T00:00:00+01:00 name=anna"), line: 1, role: "viewer"},
		{text: hashed(anna, "name=anna role=operator until=2020-01-01T00:00:00Z")},
		{text: hashed(anna, "name=anna role=operator") + "revoked name=anna at=2020-01-01T00:00:00Z\n"},
		{text: hashed(anna, "name=anna role=operator") + "revoked name=bruno at=2020-01-01T00:00:00Z\n", line: 1, role: "operator"},
		{text: "revoked name=anna at=2020-01-01T00:00:00Z\n" + hashed(anna, "name=anna role=operator"), line: 2, role: "operator"},
		{text: anna + "\n", line: 1},
		{text: "# old\r\n" + bruno + "\r\n\r\n# new\r\n" + anna, line: 5},
		{text: "# none\n\n", want: "no token there"},
		{text: anna + "\nanna-short\n", want: "tokens:2: a token of 10 characters: at least 16"},
		{text: anna + " " + anna, want: "tokens:1: character 22 is none that a header can hold"},
		{text: anna + "é", want: "tokens:1: character 22"},
		{text: strings.Repeat("x", 1<<20+1), want: "more than 1048576 bytes"},
		{text: hashed(anna, "name=anna role=root"), want: `tokens:1: role "root": viewer, operator or admin`},
		{text: hashed(anna, "name=anna"), want: `tokens:1: role ""`},
		{text: hashed(anna, "role=admin"), want: `tokens:1: name ""`},
		{text: hashed(anna, "name=anna name=b role=admin"), want: `tokens:1: field "name": unknown, or there twice`},
		{text: hashed(anna, "name=anna role=admin for=1h"), want: `tokens:1: field "for"`},
		{text: hashed(anna, "name=anna role=admin until=tomorrow"), want: `tokens:1: until: "tomorrow": a time such as`},
		{text: hashed(anna, "name="+strings.Repeat("x", 256)+" role=admin"), want: `tokens:1: name`},
		{text: "\nsha256:abc name=anna role=admin", want: "tokens:2: sha256: is followed by 3 characters"},
		{text: "sha256:", want: "tokens:1: sha256: is followed by 0 characters"},
		{text: "revoked name=anna", want: "tokens:1: revoked without at="},
		{text: "revoked ", want: "tokens:1: a token of 7 characters"},
		{text: "revoked name=anna at=2020-01-01T00:00:00Z\n", want: "no token there"},
	} {
		path := t.TempDir() + "/tokens"
		disk.Write(t, path, one.text)
		tokens, err := server.ReadOperators(path)
		switch {
		case one.want != "":
			sum := sha256.Sum256([]byte(anna))
			if err == nil || !strings.Contains(err.Error(), one.want) || strings.Contains(err.Error(), hex.EncodeToString(sum[:])) || strings.Contains(err.Error(), "anna-") {
				t.Errorf("%.90q: %v, want %s", one.text, err, one.want)
			}
		case err != nil:
			t.Errorf("%q: %v", one.text, err)
		default:
			h := tokens.Find(anna)
			if h.Line != one.line || h.Role != one.role || (h.Name == "anna") != (one.role != "") {
				t.Errorf("%q: %+v", one.text, h)
			}
			if want := one.line > 0 && one.role != "viewer"; tokens.Has(anna) != want {
				t.Errorf("%q: Has %v", one.text, !want)
			}
		}
		if tokens, err := server.ReadTokens(path); err == nil && (one.role == "operator" || one.role == "admin") {
			t.Errorf("%q: among those who may ask: %+v", one.text, tokens.Find(anna))
		}
		for mode, readable := range map[os.FileMode]bool{0o640: false, 0o644: true} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			if one.want == "" && tokens.Readable() != readable {
				t.Errorf("mode %o: readable by everyone: %v", mode, !readable)
			}
		}
	}
	if _, err := server.ReadTokens("testdata/nowhere"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestTokensWatch changes a file in steps: what is half written or wrong does not
// count, what is steady counts within a second, and a fault is reported once.
func TestTokensWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/tokens"
		write := func(text string) {
			t.Helper()
			disk.Write(t, path, text)
		}
		write(hashed(anna, "name=anna role=operator") + hashed(bruno, "name=bruno role=operator until="+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
		tokens, err := server.ReadOperators(path)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var faults []string
		go tokens.Watch(ctx, func(err error) { faults = append(faults, err.Error()) })
		expect := func(when string, annas, brunos bool) {
			t.Helper()
			if a, b := tokens.Has(anna), tokens.Has(bruno); a != annas || b != brunos {
				t.Errorf("%s: anna %v, bruno %v", when, a, b)
			}
		}
		later := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		later(time.Minute)
		expect("nothing changed", true, true)
		write(hashed(anna, "name=anna role=operator"))
		later(300 * time.Millisecond)
		expect("seen once", true, true)
		write(hashed(anna, "name=anna role=operator") + hashed(bruno, "name=bruno role=operator until="+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)) + "revoked name=anna at=2020-01-01T00:00:00Z\n")
		later(time.Second)
		expect("anna is revoked", false, true)
		write(hashed(anna, "name=anna role=king"))
		later(10 * time.Second)
		expect("a wrong role", false, true)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		later(10 * time.Second)
		expect("no file", false, true)
		later(time.Hour)
		expect("bruno's hour is over", false, false)
		write(hashed(anna, "name=anna role=admin"))
		later(time.Second)
		expect("anna again", true, false)
		if len(faults) != 2 || !strings.Contains(faults[0], "role") || !strings.Contains(faults[1], "no such file") {
			t.Errorf("%q", faults)
		}
		stop()
		synctest.Wait()
	})
}
