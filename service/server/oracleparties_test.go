package server_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-dev/stint/grpclimit"
	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/freeport"
	"github.com/stint-dev/stint/internal/testkit/need"
	"github.com/stint-dev/stint/service/proxy"
	"github.com/stint-dev/stint/service/resp"
	"github.com/stint-dev/stint/service/server"
	"github.com/stint-dev/stint/service/testkit/wire"
)

// A party is a way in which rules stand before a program, and what requests to it vary.
type party struct {
	name    string
	behind  func(t *testing.T) (address string)
	front   func(t *testing.T, behind, rules string) map[string]ask // by language
	varies  []string
	exact   bool // what is blocked, the program would have understood so
	trusted bool // it tells of clients
	anyCase bool // of paths
	slow    bool
}

func parties(t *testing.T) []party {
	all := []party{
		{name: "net/http", behind: goEcho, front: proxied, varies: ofHTTP, exact: true},
		{name: "net/http, TLS", behind: goEcho, front: proxiedTLS, varies: ofHTTP, exact: true},
		{name: "node", behind: nodeEcho(), front: proxied, varies: ofHTTP, exact: true},
		{name: "qs", behind: nodeEcho("qs"), front: proxied, varies: ofHTTP, exact: true},
		{name: "wsgiref", behind: wsgiEcho, front: proxied, varies: ofHTTP, exact: true},
		{name: "hypercorn", behind: asgiEcho, front: proxied, varies: ofHTTP, exact: true},
		{name: "php", behind: phpEcho, front: proxied, varies: ofHTTP, exact: true},
		{name: "Apache with PHP", behind: apacheEcho, front: proxied, varies: ofHTTP},
		{name: "Rack", behind: rackEcho, front: proxied, varies: ofHTTP, exact: true},
		{name: "nginx", behind: nginxEcho, front: proxied, varies: ofHTTP}, // it decodes no queries
		{name: "Caddy", behind: caddyEcho, front: proxied, varies: ofHTTP, anyCase: true},
		{name: "Django", behind: pythonEcho("django"), front: proxied, varies: withBodies},
		{name: "Flask", behind: pythonEcho("flask"), front: proxied, varies: withBodies},
		{name: "Starlette", behind: starletteEcho, front: proxied, varies: withBodies, slow: true},
		{name: "Express", behind: frameworkEcho("express", "cookie-parser"), front: proxied, varies: withBodies},
		{name: "Koa", behind: frameworkEcho("koa", "koa-bodyparser"), front: proxied, varies: withBodies},
		{name: "Fastify", behind: frameworkEcho("fastify", "@fastify/cookie"), front: proxied, varies: withBodies},
		{name: "grpc-go", behind: none, front: grpcFront, varies: []string{"header", "path", "host"}, exact: true},
		{name: "Redis", behind: redisEcho, front: respFront, varies: []string{"key"}, exact: true},
	}
	for _, r := range recipes(t) {
		all = append(all, party{name: "forward-auth of " + r.program, behind: goEcho, front: r.front, varies: ofHTTP, trusted: true})
	}
	return all
}

func none(*testing.T) (address string) { return "" }

// speaks returns how to ask at an address in a language.
func speaks(address string, say func(net.Conn, wire.Request) wire.Answer, dial func(network, address string) (net.Conn, error)) ask {
	return func(t *testing.T, r wire.Request) (string, readings) {
		t.Helper()
		conn, err := dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		a := say(conn, r)
		return a.Status, understood(t, a)
	}
}

func frames(conn net.Conn, r wire.Request) wire.Answer { return wire.Frames(conn, r, nil) }

// proxied is the proxy.
func proxied(t *testing.T, behind, rules string) map[string]ask {
	address := serveProxy(t, behind, rules, nil)
	return map[string]ask{"HTTP/1.1": speaks(address, wire.Text, net.Dial), "HTTP/2": speaks(address, frames, net.Dial)}
}

func proxiedTLS(t *testing.T, behind, rules string) map[string]ask {
	borrowed := httptest.NewTLSServer(nil)
	t.Cleanup(borrowed.Close)
	address := serveProxy(t, behind, rules, &tls.Config{Certificates: borrowed.TLS.Certificates})
	return map[string]ask{"HTTP/2": speaks(address, frames, func(network, address string) (net.Conn, error) {
		return tls.Dial(network, address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) // it is about frames
	})}
}

func serveProxy(t *testing.T, behind, rules string, secure *tls.Config) (address string) {
	t.Helper()
	o, log := newOptions(t, rules), slog.New(slog.DiscardHandler)
	h, err := proxy.NewHandler(proxy.Options{Upstream: &url.URL{Scheme: "http", Host: behind}, Source: o.Source, Observer: o.Observer, Underscores: true, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return listen(t, func(ctx context.Context, ln net.Listener) error {
		return proxy.Serve(ctx, ln, h, proxy.ServeOptions{TLS: secure, Log: log})
	})
}

// listen serves until the test ends.
func listen(t *testing.T, serve func(context.Context, net.Listener) error) (address string) {
	t.Helper()
	ln := freeport.Listen(t)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = serve(ctx, ln) // what it says when it is stopped does not matter
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return ln.Addr().String()
}

// front is a proxy that asks stint about each request, as docs/SERVE.md has it.
func (r recipe) front(t *testing.T, behind, rules string) map[string]ask {
	stint, _ := serve(t, server.CheckHost(server.NewHandler(newOptions(t, rules)), nil), server.ServeOptions{})
	address, frame := r.start(t, stint, behind)
	all := map[string]ask{"HTTP/1.1": speaks(address, wire.Text, net.Dial)}
	if frame != "" {
		all["HTTP/2"] = speaks(frame, frames, net.Dial)
	}
	return all
}

// grpcFront is a server of gRPC whose handler says what metadata it has.
func grpcFront(t *testing.T, _, rules string) map[string]ask {
	guard, err := grpclimit.NewServerPolicy(newOptions(t, rules).Source.Policy, grpclimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	handler := func(_ any, stream grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(stream.Context())
		method, _ := grpc.MethodFromServerStream(stream)
		said := map[string]string{"path": method}
		for attribute, name := range map[string]string{"header.x-api-key": "x-api-key", "host": ":authority"} {
			if values := md.Get(name); len(values) > 0 {
				said[attribute] = values[len(values)-1]
			}
		}
		body, _ := json.Marshal(said) // of strings
		return stream.SetHeader(metadata.Pairs("echo-bin", string(body)))
	}
	s := grpc.NewServer(guard.Stream(), grpc.UnknownServiceHandler(handler))
	t.Cleanup(s.Stop)
	address := listen(t, func(ctx context.Context, ln net.Listener) error {
		context.AfterFunc(ctx, s.Stop)
		return s.Serve(ln)
	})
	say := func(conn net.Conn, r wire.Request) wire.Answer {
		r = r.With(":method", "POST").And("content-type", "application/grpc", "te", "trailers")
		a := wire.Frames(conn, r, make([]byte, 5)) // an empty message
		if a.Header.Get("Grpc-Status") == fmt.Sprint(int(status.Code(status.Error(codes.PermissionDenied, "")))) {
			a.Status = "403"
		}
		return a
	}
	return map[string]ask{"frames": speaks(address, say, net.Dial)}
}

// respFront answers Redis clients; a Redis says what it reads as the key.
func respFront(t *testing.T, redis, rules string) map[string]ask {
	o := newOptions(t, rules)
	s := resp.New(resp.Options{Source: o.Source, Observer: o.Observer, Log: slog.New(slog.DiscardHandler)})
	address := listen(t, func(ctx context.Context, ln net.Listener) error { return s.Serve(ctx, ln, time.Second) })
	say := func(t *testing.T, address string, r wire.Request, words ...string) string {
		t.Helper()
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		key := r.Value("line")
		text := strings.Join(words, " ") + " " + key + "\r\n"
		if r[0].Name == "array" {
			key = r.Value("array")
			text = fmt.Sprintf("*%d\r\n", len(words)+1)
			for _, word := range words {
				text += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
			}
			length := r.Value("length")
			if length == "" {
				length = fmt.Sprint(len(key))
			}
			text += "$" + length + "\r\n" + key + "\r\n"
		}
		_, _ = io.WriteString(conn, text)    // or there is nothing to read
		_ = conn.(*net.TCPConn).CloseWrite() // so that neither waits for more
		answer, _ := io.ReadAll(conn)        // what is there
		return string(answer)
	}
	return map[string]ask{"RESP": func(t *testing.T, r wire.Request) (string, readings) {
		t.Helper()
		answer := say(t, address, r, "STINT.CHECK", "key")
		switch {
		case strings.Contains(answer, "allowed\r\n:0\r\n"):
			return "403", nil
		case !strings.HasPrefix(answer, "*"):
			return "400", nil
		}
		size, key, ok := strings.Cut(say(t, redis, r, "ECHO"), "\r\n")
		if !ok || !strings.HasPrefix(size, "$") {
			return "400", nil
		}
		key = key[:min(len(key), atoi(t, size[1:]))]
		return "200", readings{"key": &key}
	}}
}

func atoi(t *testing.T, text string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// goEcho takes the host and the path from headers, as servers do that trust a proxy.
func goEcho(t *testing.T) (address string) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := map[string]string{"path": cmp.Or(r.Header.Get("X-Original-Url"), r.URL.Path), "host": cmp.Or(r.Header.Get("X-Forwarded-Host"), r.Host), "method": r.Method}
		if lines := r.Header.Values("X-Api-Key"); len(lines) > 0 {
			said["header.x-api-key"] = lines[len(lines)-1]
		}
		for _, name := range []string{"session", "user_id"} {
			if cookie, err := r.Cookie(name); err == nil {
				said["cookie."+name] = cookie.Value
			}
		}
		for _, name := range []string{"action", "api_key"} {
			if values := r.URL.Query()[name]; len(values) > 0 {
				said["query."+name] = values[0]
			}
		}
		w.Header().Set("Echo", "1")
		_ = json.NewEncoder(w).Encode(said) // the test reads it
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// program runs a program until the test ends.
func program(t *testing.T, name string, args ...string) io.Reader {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir = filepath.Join("testdata", "oracle")
	c.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PHP_FCGI_MAX_REQUESTS=0", "NODE_PATH="+nodeModules(t), "XDG_DATA_HOME="+t.TempDir())
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt) // it ends those that it has started
		killed := time.AfterFunc(patience, func() { _ = c.Process.Kill() })
		_ = c.Wait() // it was told to end
		killed.Stop()
	})
	return out
}

// configured runs a program with a file of testdata/oracle, in which ADDRESS, PORT and other words
// are replaced, and returns where it listens.
func configured(t *testing.T, file string, replace []string, name string, args ...string) (address string) {
	t.Helper()
	path, dir, address := need.Program(t, name), readable(t), freeport.Addr(t)
	_, port, _ := net.SplitHostPort(address)
	config := filepath.Join(dir, file)
	words := strings.NewReplacer(append(replace, "ADDRESS", address, "PORT", port, "DIR", dir)...)
	disk.Write(t, config, words.Replace(string(disk.Read(t, filepath.Join("testdata", "oracle", file)))))
	program(t, path, append(args, config)...)
	wire.Reached(t, address)
	return address
}

// readable returns a directory for programs that drop the rights of root, and may not read
// where the test is.
func readable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// reported runs a program and returns the address that it prints.
func reported(t *testing.T, name string, args ...string) string {
	t.Helper()
	line, err := bufio.NewReader(program(t, name, args...)).ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return strings.TrimSpace(line)
}

func nodeEcho(modules ...string) func(t *testing.T) (address string) {
	return func(t *testing.T) (address string) {
		return noded(t, modules, append([]string{"echo.js"}, modules...)...)
	}
}

func frameworkEcho(framework, parser string) func(t *testing.T) (address string) {
	return func(t *testing.T) (address string) {
		return noded(t, []string{framework, parser}, "frameworks.js", framework)
	}
}

// nodeModules is where .ci/needs puts the packages of npm.
func nodeModules(t *testing.T) string {
	t.Helper()
	modules, err := filepath.Abs("../../bin/node/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	return modules
}

// noded runs a program of Node that needs modules.
func noded(t *testing.T, modules []string, args ...string) (address string) {
	t.Helper()
	for _, name := range modules {
		need.Package(t, "../..", name)
	}
	return reported(t, need.Program(t, "node"), args...)
}

// python is Debian's, which has its packages.
const python = "/usr/bin/python3"

// needModules skips the test where one of Python's modules is missing.
func needModules(t *testing.T, names ...string) {
	t.Helper()
	path := need.Program(t, python)
	for _, name := range names {
		if exec.Command(path, "-c", "import "+name).Run() != nil {
			need.Missing(t, "python3-"+name)
		}
	}
}

func wsgiEcho(t *testing.T) (address string) {
	return reported(t, need.Program(t, python), "echo.py")
}

func asgiEcho(t *testing.T) (address string) {
	needModules(t, "hypercorn")
	return listening(t, python, "-m", "hypercorn", "-b", "ADDRESS", "--error-logfile", "/dev/null", "echo:app")
}

func pythonEcho(framework string) func(t *testing.T) (address string) {
	return func(t *testing.T) (address string) {
		needModules(t, framework)
		return reported(t, python, "frameworks.py", framework)
	}
}

func starletteEcho(t *testing.T) (address string) {
	needModules(t, "hypercorn", "starlette")
	return listening(t, python, "-m", "hypercorn", "-b", "ADDRESS", "--error-logfile", "/dev/null", "frameworks:starlette")
}

func phpEcho(t *testing.T) (address string) {
	return listening(t, "php", "-q", "-S", "ADDRESS", "echo.php")
}

func rackEcho(t *testing.T) (address string) {
	return listening(t, "puma", "-q", "-b", "tcp://ADDRESS", "rack.ru")
}

// listening runs a program at an address, which stands for ADDRESS or, by halves, HOST and PORT.
func listening(t *testing.T, name string, args ...string) (address string) {
	t.Helper()
	path := need.Program(t, name)
	address = freeport.Addr(t)
	_, port, _ := net.SplitHostPort(address)
	for i, arg := range args {
		args[i] = strings.NewReplacer("ADDRESS", address, "PORT", port).Replace(arg)
	}
	program(t, path, args...)
	wire.Reached(t, address)
	return address
}

func redisEcho(t *testing.T) (address string) {
	return listening(t, "redis-server", "--port", "PORT", "--bind", "127.0.0.1", "--save", "")
}

func nginxEcho(t *testing.T) (address string) {
	return configured(t, "nginx.conf", nil, "nginx", "-c")
}

func caddyEcho(t *testing.T) (address string) {
	return configured(t, "Caddyfile", nil, "caddy", "run", "--adapter", "caddyfile", "--config")
}

func apacheEcho(t *testing.T) (address string) {
	need.Program(t, "apache2")
	here := readable(t)
	if err := os.CopyFS(here, os.DirFS(filepath.Join("testdata", "oracle"))); err != nil {
		t.Fatal(err)
	}
	php := listening(t, "php-cgi", "-d", "cgi.force_redirect=0", "-b", "ADDRESS")
	user := ""
	if os.Getuid() == 0 {
		user = "User nobody\nGroup nogroup"
	}
	return configured(t, "apache.conf", []string{"PHP", php, "HERE", here, "MODULES", "/usr/lib/apache2/modules", "USER", user}, "apache2", "-DFOREGROUND", "-f")
}
