package main_test

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/need"
)

// TestOperateHTTPS acts where the rules come over https and acts are kept in a
// state file: they stay when the rules change there, when a rule goes and comes
// back, after a kill, and while the server of the rules is gone.
func TestOperateHTTPS(t *testing.T) {
	need.Time(t)
	var document atomic.Value
	publish := func(limit string) { document.Store(strings.Replace(operateRules, "orders", limit, 1)) }
	document.Store(operateRules)
	site := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := document.Load().(string)
		tag := fmt.Sprintf(`"%x"`, text)
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, text)
	}))
	defer site.Close()
	dir := t.TempDir()
	t.Setenv("SSL_CERT_FILE", writeFile(t, dir+"/ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: site.Certificate().Raw}))))
	begin := func() *running {
		t.Helper()
		p := launch(t, "serve", "serve", "--rules", site.URL+"/stint.yaml", "--rules-copy", dir+"/copy", "--state", dir+"/state", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0")
		p.listening()
		return p
	}
	p := begin()
	p.requests("partner-1", 6)
	if p.requests("partner-1", 1) != 0 {
		t.Fatal("the rules over https are not in force")
	}
	if status, out, errs := p.stint("override", "set", "orders", "partner-1", "100/h", "--for", "1h"); status != 0 {
		t.Fatal(out, errs)
	}
	held := func(when string) {
		t.Helper()
		await.Until(t, "the override holds "+when, func() bool { return p.requests("partner-1", 1) == 1 })
		if s := p.inspect("--header", "x-api-key=partner-1"); s.Rules[0].Override == nil {
			t.Errorf("%s: %+v", when, s.Rules[0])
		}
	}
	held("at first")
	reloaded := func() int { return strings.Count(p.log(), "rules: reloaded") }
	change := func(limit string) {
		t.Helper()
		before := reloaded()
		publish(limit)
		await.Until(t, "the rules are read again", func() bool { return reloaded() > before })
	}
	change("other")
	change("orders")
	held("when the rule has gone and come back")
	_ = p.end(syscall.SIGKILL) // as a crash does
	p = begin()
	held("after a kill")
	_ = p.end(syscall.SIGKILL)
	site.CloseClientConnections()
	site.Close()
	p = begin()
	held("while the server of the rules is gone")
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
