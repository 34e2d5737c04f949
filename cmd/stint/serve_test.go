package main_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stint-dev/stint/internal/testkit/await"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/need"
)

const (
	serveRules    = "rules: [{name: pages, key: [ip], limits: 2 per hour}]\n"
	serveToken    = "ask-0123456789abcdef"
	operatorToken = "operator-0123456789abcdef"
)

// TestServeRefuses starts with what cannot be right, and compares the error.
func TestServeRefuses(t *testing.T) {
	dir := t.TempDir()
	disk.Write(t, dir+"/good.yaml", serveRules)
	busy := freeport.Listen(t)
	defer busy.Close()
	socket, err := net.Listen("unix", dir+"/busy.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for _, one := range []struct {
		args   string
		status int
		want   string
	}{
		{"", 2, "--config: missing: write the rules file, such as -c stint.yaml, how much each client may, such as --limit '10/s burst 20', or --rules and a database\n"},
		{"-c DIR/nowhere.yaml", 1, "DIR/nowhere.yaml: no such file or directory\n"},
		{"-c " + disk.Write(t, dir+"/bad.yaml", "rules: [{name: pages}]\n"), 1, "DIR/bad.yaml:1:9: rules[0]: "},
		{"-c " + disk.Write(t, dir+"/store.yaml", "store: memcached://:secret@127.0.0.1\n"+serveRules), 1, "DIR/store.yaml:1:8: store: memcached://127.0.0.1 is no Redis: write redis://host:6379, with user:password@ and /db as needed, rediss:// for TLS, or unix:///run/redis.sock\n"},
		{"-c DIR/good.yaml --store 127.0.0.1:6379", 2, "--store: this is no URL: write redis://host:6379, with user:password@ and /db as needed, rediss:// for TLS, or unix:///run/redis.sock\n"},
		{"-c DIR/good.yaml --store redis://app:2468#secret@h:6379", 2, "--store: this is no Redis: write redis://host:6379, with user:password@ and /db as needed, rediss:// for TLS, or unix:///run/redis.sock\n"},
		{"-c DIR/good.yaml --store redis//:secret@h", 2, "--store: this is no Redis: write redis://host:6379, with user:password@ and /db as needed, rediss:// for TLS, or unix:///run/redis.sock\n"},
		{"-c " + disk.Write(t, dir+"/field.yaml", serveRules+"trusted_proxy: 10.0.0.0/8\n"), 1, "DIR/field.yaml:2:1: unknown field \"trusted_proxy\"; did you mean \"trusted_proxies\"?\n"},
		{"-c " + disk.Write(t, dir+"/typo.yaml", serveRules+"store: redis://127.0.0.1:6379?dial_timout=1s\n"), 1, "DIR/typo.yaml:2:8: store: redisstore: the URL: \"dial_timout\" is no parameter: did you mean dial_timeout?\n"},
		{"--rules DIR/good.yaml", 2, "--rules: DIR/good.yaml is a file: write -c DIR/good.yaml for a file of rules, --rules sqlite:DIR/good.yaml for a database\n"},
		{"--rules password=secret", 2, "--rules: this is no URL of a database: sqlite:FILE, postgres://…, mysql://…\n"},
		{"-c DIR/good.yaml --nodes=-1", 2, "--nodes: -1: at least 1\n"},
		{"-c DIR/good.yaml --store-prefix fleet{1}", 2, "--store-prefix: \"fleet{1}\": no braces, which mark the slot of a cluster\n"},
		{"-c DIR/good.yaml --store-timeout 0s", 2, "--store-timeout: 0s: longer than 0s, and 5s at most\n"},
		{"-c DIR/good.yaml --store-timeout=-15ms", 2, "--store-timeout: -15ms: longer than 0s, and 5s at most\n"},
		{"-c DIR/good.yaml --store-timeout 5001ms", 2, "--store-timeout: 5.001s: longer than 0s, and 5s at most\n"},
		{"-c DIR/good.yaml --secret-file " + disk.Write(t, dir+"/secret", "short\n"), 1, "--secret-file: DIR/secret: a secret of 5 bytes: at least 16, such as openssl rand -hex 32 makes\n"},
		{"-c DIR/good.yaml --http 0.0.0.0:0", 2, "--http: 0.0.0.0:0 can be reached from other machines: give --tls-cert and --tls-key, or --token-file; or listen on 127.0.0.1\n"},
		{"-c DIR/good.yaml --http :0", 2, "--http: :0 can be reached from other machines: give --tls-cert and --tls-key, or --token-file; or listen on 127.0.0.1\n"},
		{"-c DIR/good.yaml --http " + busy.Addr().String(), 1, "--http " + busy.Addr().String() + ": something else listens there already; choose another, or 127.0.0.1:0 for any free port\n"},
		{"-c DIR/good.yaml --http 127.0.0.1", 2, "--http: 127.0.0.1: "},
		{"-c DIR/good.yaml --http unix:DIR/busy.sock", 1, "--http unix:DIR/busy.sock: something else listens there already\n"},
		{"-c DIR/good.yaml --http unix:" + disk.Write(t, dir+"/important.txt", "precious\n"), 1, "--http unix:DIR/important.txt: a file that is no socket is there: remove it, or name another path\n"},
		{"-c DIR/good.yaml --http unix:DIR/no/such.sock", 1, "--http unix:DIR/no/such.sock: "},
		{"-c DIR/good.yaml --grpc :0", 2, "--grpc: :0 can be reached from other machines"},
		{"-c DIR/good.yaml --resp 0.0.0.0:0", 2, "--resp: 0.0.0.0:0 can be reached from other machines"},
		{"-c DIR/good.yaml --tls-client-ca x.pem", 2, "--tls-client-ca: goes with --tls-cert"},
		{"-c DIR/good.yaml --tls-cert DIR/cert.pem", 2, "--tls-cert: goes with --tls-key: give both, or none\n"},
		{"-c DIR/good.yaml --tls-cert DIR/cert.pem --tls-key DIR/key.pem", 1, "--tls-cert, --tls-key: open DIR/cert.pem: no such file or directory\n"},
		{"-c DIR/good.yaml --token-file DIR/nowhere", 1, "--token-file: open DIR/nowhere: no such file or directory\n"},
		{"-c DIR/good.yaml --token-file " + disk.Write(t, dir+"/short", "\nsecret\n"), 1, "--token-file: DIR/short:2: a token of 6 characters: at least 16, such as openssl rand -hex 32 makes\n"},
		{"-c DIR/good.yaml --operator-token-file " + disk.Write(t, dir+"/empty", "# none\n"), 1, "--operator-token-file: DIR/empty: no token there: write one on a line, such as openssl rand -hex 32 makes\n"},
		{"-c DIR/good.yaml --max-batch 0", 2, "--max-batch: 0: at least 1\n"},
		{"-c DIR/good.yaml --max-keys 0", 2, "--max-keys: 0: at least 1\n"},
		{"-c DIR/good.yaml --drain=-1s", 2, "--drain: -1s: at least 0s\n"},
		{"-c DIR/good.yaml --drain-delay=-1s", 2, "--drain-delay: -1s: at least 0s\n"},
		{"-c DIR/good.yaml --trusted-proxy 10.0.0.1/8", 2, "--trusted-proxy: \"10.0.0.1/8\": the address has bits behind the length of the range; did you mean 10.0.0.0/8?\n"},
	} {
		status, out, got := runStint(t, append([]string{"serve"}, strings.Fields(strings.ReplaceAll(one.args, "DIR", dir))...)...)
		want := "stint serve: " + strings.ReplaceAll(one.want, "DIR", dir)
		if status != one.status || !strings.HasPrefix(got, want) || strings.HasSuffix(want, "\n") && got != want || out != "" {
			t.Errorf("%s: exit %d\n%s%s\nwant exit %d\n%s", one.args, status, out, got, one.status, want)
		}
	}
}

// TestServe runs it from its start to its stop: reloads by a change of the file
// and by SIGHUP, tokens that change, an operator's reset.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	config, tokens := disk.Write(t, dir+"/stint.yaml", serveRules), disk.Write(t, dir+"/tokens", serveToken)
	operators := disk.Write(t, dir+"/operators", operatorToken)
	if err := os.Chmod(operators, 0o644); err != nil {
		t.Fatal(err)
	}
	s := startServe(t, "-c", config, "--http", "127.0.0.1:0", "--token-file", tokens, "--operator-token-file", operators)
	if !strings.Contains(s.log(), "can read the tokens: chmod o-r") || strings.Count(s.log(), "chmod o-r") != 1 {
		t.Error("no warning of the one file that everyone can read")
	}
	s.want("/v1/check", "", 401, "token")
	s.want("/v1/check", serveToken, 200, `"limit":2,"remaining":1`)
	s.want("/v1/check", operatorToken, 200, `"remaining":0`)
	s.want("/v1/check", serveToken, 429, `"denied_by":["pages"]`)
	s.want("/v1/reset", serveToken, 403, "operators")
	s.want("/v1/refund", operatorToken, 200, `"remaining":1`)
	s.want("/v1/reset", operatorToken, 200, `{"rules":["pages"]}`)
	s.next("msg=refund token_line=1 cost=1 rule=pages key_hash=")
	s.next("msg=reset token_line=1 rule=pages key_hash=")
	s.want("/v1/check", serveToken, 200, `"remaining":1`)

	disk.Write(t, config, strings.Replace(serveRules, "2 per hour", "5 per hour", 1))
	s.next("rules: reloaded")
	s.want("/v1/check", serveToken, 200, `"limit":5`)
	disk.Write(t, config, "rules: [")
	s.next("rules: not reloaded")
	disk.Write(t, tokens, "another-0123456789abcdef")
	s.signal(syscall.SIGHUP)
	for status := 200; status != 401; { // the signal is on its way
		status, _ = s.ask("/v1/peek", `{"attributes":{}}`, serveToken)
	}
	s.want("/v1/peek", "another-0123456789abcdef", 200, `"limit":5`)
	disk.Write(t, tokens, "short")
	s.signal(syscall.SIGHUP)
	s.next("stays as it was")
	s.want("/v1/peek", "another-0123456789abcdef", 200, `"limit":5`)
	s.stop("allowed=4 denied=1 failed=0")
}

// TestServeSecondSignal stops it while a request is held, and stops it again:
// that ends it at once.
func TestServeSecondSignal(t *testing.T) {
	const rules = "trusted_proxies: [127.0.0.1]\nrules: [{name: queue, key: [], limits: 15 per minute burst 5 leaky_queue}]\n"
	s := startServe(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", rules), "--http", "127.0.0.1:0")
	held := make(chan error, 1)
	go func() {
		for range 2 { // the first starts at once, the second in 4 s
			r, _ := http.NewRequest(http.MethodGet, s.front+"/auth", nil)
			r.Header = http.Header{"X-Original-Method": {"GET"}, "X-Original-Uri": {"/"}, "X-Original-Host": {"h"}}
			resp, err := s.client.Do(r)
			if err != nil {
				held <- err
				return
			}
			_ = resp.Body.Close()
		}
		held <- nil
	}()
	for answer := ""; !strings.Contains(answer, `"remaining":4,`); { // until the second is held
		_, answer = s.ask("/v1/peek", `{"attributes":{}}`, "")
	}
	s.signal(syscall.SIGTERM)
	s.next("msg=stopping")
	for {
		select {
		case err := <-s.ended:
			if err == nil || !strings.Contains(err.Error(), "signal: terminated") {
				t.Errorf("ended by %v", err)
			}
			if err := <-held; err == nil {
				t.Error("the request that was held was answered")
			}
			return
		case <-time.After(10 * time.Millisecond):
			_ = s.process.Process.Signal(syscall.SIGTERM) // it may have ended meanwhile
		}
	}
}

// TestServeElsewhere listens on every address, with tokens and without TLS.
func TestServeElsewhere(t *testing.T) {
	dir := t.TempDir()
	s := startServe(t, "-c", disk.Write(t, dir+"/stint.yaml", serveRules), "--http", "0.0.0.0:0", "--operator-token-file", disk.Write(t, dir+"/tokens", operatorToken))
	if !strings.Contains(s.log(), "tokens go over the network in clear: --tls-cert and --tls-key encrypt them") {
		t.Error("no warning")
	}
	s.front = here("http", s.front)
	s.want("/v1/check", "", 401, "token")
	s.want("/v1/check", operatorToken, 200, `"remaining":1`)
	s.stop("allowed=1 denied=0 failed=0")
}

// TestServeUnix listens on a socket in place of one that was left behind.
func TestServeUnix(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "stint.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	_ = left.Close() // as a process that was killed
	s := startServe(t, "-c", disk.Write(t, dir+"/stint.yaml", serveRules), "--http", "unix:"+path)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("the socket: %v, %v", info.Mode(), err)
	}
	s.client.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}
	s.front = "http://any.example" // no page in a browser reaches a socket
	s.want("/v1/check", "", 200, `"remaining":1`)
	if resp := s.auth("/", "192.0.2.7"); resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("RateLimit"), `"pages";r=0`) {
		t.Errorf("/auth: %d %v", resp.StatusCode, resp.Header)
	}
	s.stop("allowed=2 denied=0 failed=0")
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket is left behind")
	}
}

// TestServeTLS serves https, and shows another certificate after SIGHUP, or when its
// files have changed; the log says so.
func TestServeTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := dir+"/cert.pem", dir+"/key.pem"
	trust := func(serial int64) *tls.Config {
		pool := x509.NewCertPool()
		pool.AddCert(writeCertificate(t, cert, key, serial))
		return &tls.Config{RootCAs: pool}
	}
	first := trust(1)
	s := startServe(t, "-c", disk.Write(t, dir+"/stint.yaml", serveRules), "--http", "0.0.0.0:0", "--tls-cert", cert, "--tls-key", key)
	if !strings.Contains(s.log(), "everyone who reaches this address may ask: --token-file says who may") {
		t.Error("no warning")
	}
	s.front = here("https", s.front)
	s.client.Transport = &http.Transport{TLSClientConfig: first, ForceAttemptHTTP2: true}
	s.want("/v1/check", "", 200, `"remaining":1`)
	s.want("/v1/refund", "", 403, "--operator-token-file FILE")

	old := first.Clone()
	old.MaxVersion = tls.VersionTLS11
	if conn, err := tls.Dial("tcp", host(s.front), old); err == nil {
		_ = conn.Close()
		t.Error("TLS 1.1 is spoken")
	}
	shows := func(trusted *tls.Config) {
		t.Helper()
		for { // it is noticed in a while
			conn, err := tls.Dial("tcp", host(s.front), trusted)
			if err == nil {
				_ = conn.Close()
				break
			}
			if t.Context().Err() != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	second := trust(2)
	s.signal(syscall.SIGHUP)
	shows(second)
	shows(trust(3))                               // without a signal
	s.want("/v1/check", "", 200, `"remaining":0`) // over the connection of before
	s.client.CloseIdleConnections()
	s.stop("allowed=2 denied=0 failed=0")
	if n := strings.Count(s.log(), `msg="read again" what="--tls-cert, --tls-key" valid_until=`); n < 2 {
		t.Errorf("the log says %d times that the certificate was read again", n)
	}
}

// writeCertificate writes a certificate for 127.0.0.1 that signs itself.
func writeCertificate(t testing.TB, cert, key string, serial int64) *x509.Certificate {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	disk.Write(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	disk.Write(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: privateDER})))
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// TestHelpWords: help is had in the ways that other programs have it.
func TestHelpWords(t *testing.T) {
	ask := func(line string) string { return (session{args: strings.Fields(line)}).run() }
	for line, same := range map[string]string{
		"help": "--help", "help serve": "serve --help", "help override set": "override set --help", "-v": "version", "--version": "version",
	} {
		if got, want := ask(line), ask(same); got != want || strings.Contains(got, "exit") {
			t.Errorf("stint %s: %.200s, want what stint %s says", line, got, same)
		}
	}
	if got := ask("help serv"); !strings.Contains(got, "did you mean \"serve\"?") {
		t.Errorf("stint help serv: %s", got)
	}
}

// TestPorts: an address without a host says what to write, and a port that no
// address has is refused at the start, wherever it stands.
func TestPorts(t *testing.T) {
	file := disk.Write(t, t.TempDir()+"/good.yaml", serveRules)
	const bad = "port 99999: a port is a number from 1 to 65535"
	for _, one := range [][2]string{
		{"serve -c FILE --http 8000", "--http: 8000: an address has a host and a port: write 127.0.0.1:8000 for this machine alone, :8000 for"},
		{"serve -c FILE --admin 9090", "write 127.0.0.1:9090"},
		{"proxy FILE --upstream http://127.0.0.1:9 --listen 8000", "--listen: 8000: an address has a host and a port"},
		{"serve -c FILE --http 127.0.0.1:99999", bad},
		{"proxy FILE --upstream https://h:99999", bad},
		{"serve -c FILE --store redis://h:99999", bad},
		{"serve -c FILE --store redis://h:1,i:99999", bad},
		{"serve -c FILE --store redis://h:0", "port 0: a port is a number from 1 to 65535"},
		{"serve --rules https://h:99999/a.yaml", bad},
		{"serve --rules redis://h:99999", bad},
		{"serve --rules mysql://h:99999/stint", bad},
		{"rules nodes --server https://h:99999", bad},
		{"serve -c FILE --otlp http://h:99999", bad},
		{"serve -c FILE --webhook https://h:99999 --webhook-secret-file FILE", bad},
	} {
		args := strings.Fields(strings.ReplaceAll(one[0], "FILE", file))
		if got := (session{args: args}).run(); !strings.Contains(got, one[1]) || !strings.Contains(got, "exit 2") {
			t.Errorf("stint %s: %s, want %s", one[0], got, one[1])
		}
	}
}

// TestStopWhileStarting ends servers that wait for their first rules, of sources that take a
// connection and say nothing: a stop waits for none of them, and is no failure.
func TestStopWhileStarting(t *testing.T) {
	need.Time(t)
	proxy := []string{"--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1"}
	for _, test := range []struct {
		command, scheme, path string
		more                  []string
	}{
		{"serve", "xds", "", nil}, {"serve", "http", "/stint.yaml", nil}, {"serve", "redis", "", nil}, {"serve", "postgres", "/stint", nil}, {"proxy", "xds", "", proxy},
	} {
		t.Run(test.command+" "+test.scheme, func(t *testing.T) {
			t.Parallel() // it waits
			silent := freeport.Listen(t)
			defer silent.Close()
			asked := make(chan net.Conn, 100)
			go func() {
				for conn, err := silent.Accept(); err == nil; conn, err = silent.Accept() {
					asked <- conn
				}
			}()
			p := launch(t, append([]string{test.command, "--rules", test.scheme + "://" + silent.Addr().String() + test.path, "--rules-copy", "none"}, test.more...)...)
			await.Until(t, "it asks", func() bool { return len(asked) > 0 })
			if err := p.end(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestServeAdmin: stint serve has a second address for operators, with the lab on it,
// which reads no logs there; the first has none.
func TestServeAdmin(t *testing.T) {
	s := operated(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", serveRules))
	for _, c := range []struct {
		method, url string
		status      int
		answer      string
	}{
		{"GET", s.admin + "/lab/", 200, "<title>stint lab</title>"},
		{"GET", s.admin + "/lab/v1/lab", 200, `"plan":false`},
		{"POST", s.admin + "/lab/v1/plan", 405, ""},
		{"POST", s.admin + "/v1/simulate", 200, `"denied":10`},
		{"POST", s.admin + "/v1/check", 404, ""},
		{"GET", s.front + "/lab/", 404, ""},
		{"POST", s.front + "/v1/simulate", 404, ""},
	} {
		status, body := s.call(c.method, c.url, `{"limits":["10/s"],"arrivals":{"shape":"text","text":"20@once"}}`, nil)
		if status != c.status || !strings.Contains(body, c.answer) {
			t.Errorf("%s %s: %d %.200s; want %d and %q", c.method, c.url, status, body, c.status, c.answer)
		}
	}
}
