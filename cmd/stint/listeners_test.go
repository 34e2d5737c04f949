package main_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/internal/testkit/made"
	"github.com/stint-dev/stint/memstore"
	"github.com/stint-dev/stint/policy"
	"github.com/stint-dev/stint/service/rules"
)

// interfaceRules count each interface apart, so that the same requests must be decided
// alike at each. Nothing comes back within the time of a test, nor ends.
const interfaceRules = `rules:
  - {name: ban, match: {user: mallory}, block: true}
  - {name: staff, match: {user: root}, unlimited: true}
  - {name: trial, match: {user: true}, key: [interface, user], limits: ["1 per day"], shadow: true}
  - {name: user, match: {user: true}, key: [interface, user], limits: ["9 per 10 days", "30 per 365 days sliding_log"]}
  - {name: login, match: {method: POST, path: /login}, key: [interface], limits: ["25 per 30 days"], cost: {attribute: price, default: 2, max: 7}}
  - {name: strict, match: {plan: [free, trial]}, key: [interface, ip], on_missing: deny, limits: ["4 per 100 days sliding_buckets"]}
`

// A question is one request, whatever interface it comes by.
type question struct {
	attributes map[string]string
	cost       int64
}

// said is a decision as every interface says it: the verdict, and what is left under
// the limit that it is about.
type said struct {
	allowed   bool
	about     bool // there is a limit
	remaining int64
}

func (q question) through(name string) map[string]string {
	all := map[string]string{"interface": name}
	for k, v := range q.attributes {
		all[k] = v
	}
	return all
}

func questions(n int) (all []question) {
	random := rand.New(rand.NewPCG(3, 14))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	for range n {
		q := question{map[string]string{}, 1 + int64(random.IntN(3))}
		for name, value := range map[string]string{
			"user": pick("ann", "bob", "cat", "dan", "eve", "root", "mallory", "", ""), "method": pick("POST", "GET"),
			"path": pick("/login", "/a/../login", "/other"), "price": pick("", "1", "5", "100"), "plan": pick("free", "trial", "paid", ""), "ip": pick("192.0.2.1", "192.0.2.1:4711", "2001:db8::1", "[2001:db8::1]:80", "2001:db8::2", ""),
		} {
			if value != "" {
				q.attributes[name] = value
			}
		}
		all = append(all, q)
	}
	return all
}

// TestInterfacesAgree asks the library, /v1/check, /json, Envoy's service and
// STINT.CHECK the same questions in the same order, and compares what they say.
func TestInterfacesAgree(t *testing.T) {
	s := startServe(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", interfaceRules), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0")
	envoy := grpcClient(t, s.at("interface=grpc"), insecure.NewCredentials())
	client := redis.NewClient(&redis.Options{Addr: s.at("interface=resp")})
	defer client.Close()
	interfaces := []struct {
		name string
		ask  func(question) (said, error)
	}{
		{"library", library(t)},
		{"check", func(q question) (said, error) { return s.askCheck(q) }},
		{"json", func(q question) (said, error) { return s.askJSON(q) }},
		{"rls", func(q question) (said, error) {
			resp, err := envoy.ShouldRateLimit(t.Context(), envoyRequest("rls", q))
			return envoySaid(resp), err
		}},
		{"resp", func(q question) (said, error) { return stintCheck(t.Context(), client, q) }},
	}
	allowed, denied := 0, 0
	for i, q := range questions(400) {
		var first said
		for k, one := range interfaces {
			got, err := one.ask(q)
			switch {
			case err != nil:
				t.Fatalf("%d: %s: %v", i, one.name, err)
			case k == 0:
				first = got
			case got != first:
				t.Errorf("%d: %v: %s says %+v, %s says %+v", i, q, interfaces[0].name, first, one.name, got)
			}
		}
		if first.allowed {
			allowed++
		} else {
			denied++
		}
	}
	if allowed < 50 || denied < 50 {
		t.Errorf("%d allowed and %d denied: the questions see one side only", allowed, denied)
	}
	_ = client.Close()
	listeners := len(interfaces) - 1 // the library is not it
	s.stop(fmt.Sprintf("allowed=%d denied=%d failed=0", listeners*allowed, listeners*denied))
}

// TestNoRulesYet asks programs whose database holds no rules yet: each interface blames that, not the store.
func TestNoRulesYet(t *testing.T) {
	url := "sqlite:" + t.TempDir() + "/stint.db"
	must(t, "rules", "migrate", "--rules", url)
	s := operated(t, "--rules", url, "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--trusted-proxy", "127.0.0.1")
	p := startStint(t, "proxy", "--rules", url, "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1")
	envoy := grpcClient(t, s.at("interface=grpc"), insecure.NewCredentials())
	client := redis.NewClient(&redis.Options{Addr: s.at("interface=resp")})
	defer client.Close()
	q := question{map[string]string{"user": "ann"}, 1}
	_, ofEnvoy := envoy.ShouldRateLimit(t.Context(), envoyRequest("rls", q))
	_, ofRedis := stintCheck(t.Context(), client, q)
	_, ofCheck := s.ask("/v1/check", `{"attributes":{"user":"ann"}}`, "")
	_, ofAuth := s.call("GET", s.front+"/auth", "", map[string]string{"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Method": "GET", "X-Forwarded-Host": "a", "X-Forwarded-Uri": "/"})
	_, ofProxy := p.call("GET", p.front+"/", "", nil)
	_, ready := s.call("GET", s.admin+"/readyz", "", nil)
	for name, said := range map[string]string{"grpc": fmt.Sprint(ofEnvoy), "resp": fmt.Sprint(ofRedis), "check": ofCheck, "auth": ofAuth, "proxy": ofProxy, "readyz": ready} {
		if strings.Count(said, "there are no rules yet") != 1 || strings.Count(said, url) > 1 {
			t.Errorf("%s: %s", name, said)
		}
	}
	if log := s.log() + p.log(); strings.Contains(log, "store failed") || strings.Count(log, "request refused: there are no rules yet") != 2 {
		t.Errorf("%s", log)
	}
}

func library(t *testing.T) func(question) (said, error) {
	file, err := rules.Decode("stint.yaml", []byte(interfaceRules))
	if err != nil {
		t.Fatal(err)
	}
	p := made.Policy(t, memstore.New(memstore.Options{}), file.Rules, policy.Options{})
	var r policy.Result
	return func(q question) (said, error) {
		if err := p.Decide(t.Context(), policy.Map(q.through("library")), q.cost, &r); err != nil {
			return said{}, err
		}
		about := r.Tightest >= 0 && r.Rules[r.Tightest].Action == ""
		one := said{allowed: r.Decision.Allowed, about: about}
		if about {
			one.remaining = r.Decision.Remaining
		}
		return one, nil
	}
}

// askCheck asks POST /v1/check.
func (p *running) askCheck(q question) (said, error) {
	body, err := json.Marshal(map[string]any{"attributes": q.through("check"), "cost": q.cost})
	if err != nil {
		return said{}, err
	}
	_, text := p.ask("/v1/check", string(body), "")
	var answer struct {
		Allowed   *bool  `json:"allowed"`
		Remaining *int64 `json:"remaining"`
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return said{}, err
	}
	if answer.Allowed == nil {
		return said{}, errors.New(text)
	}
	one := said{allowed: *answer.Allowed, about: answer.Remaining != nil}
	if one.about {
		one.remaining = *answer.Remaining
	}
	return one, nil
}

// askJSON asks POST /json.
func (p *running) askJSON(q question) (said, error) {
	body, err := protojson.Marshal(envoyRequest("json", q))
	if err != nil {
		return said{}, err
	}
	_, text := p.ask("/json", string(body), "")
	var resp pb.RateLimitResponse
	if err := protojson.Unmarshal([]byte(text), &resp); err != nil {
		return said{}, fmt.Errorf("%s: %w", text, err)
	}
	return envoySaid(&resp), nil
}

// envoyRequest is a question as one descriptor. The cost is the request's, or
// the descriptor's own.
func envoyRequest(name string, q question) *pb.RateLimitRequest {
	d := &ratelimit.RateLimitDescriptor{}
	for k, v := range q.through(name) {
		d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: k, Value: v})
	}
	req := &pb.RateLimitRequest{Domain: "listeners", Descriptors: []*ratelimit.RateLimitDescriptor{d}, HitsAddend: uint32(q.cost)}
	if q.cost%2 == 0 {
		req.HitsAddend, d.HitsAddend = 7, wrapperspb.UInt64(uint64(q.cost))
	}
	return req
}

func envoySaid(resp *pb.RateLimitResponse) said {
	one := said{allowed: resp.GetOverallCode() == pb.RateLimitResponse_OK}
	if len(resp.GetStatuses()) == 1 && resp.GetStatuses()[0].GetCurrentLimit() != nil {
		one.about, one.remaining = true, int64(resp.GetStatuses()[0].GetLimitRemaining())
	}
	return one
}

// stintCheck asks STINT.CHECK. A block has no limit: the answer's is 0.
func stintCheck(ctx context.Context, client *redis.Client, q question) (said, error) {
	args := []any{"STINT.CHECK"}
	for k, v := range q.through("resp") {
		args = append(args, k, v)
	}
	answer, err := client.Do(ctx, append(args, "COST", strconv.FormatInt(q.cost, 10))...).Result()
	if err != nil {
		return said{}, err
	}
	fields, ok := answer.(map[any]any)
	if !ok {
		return said{}, fmt.Errorf("%T: %v", answer, answer)
	}
	one := said{allowed: fields["allowed"] == true, about: fields["limit"] != int64(0)}
	if one.about {
		one.remaining, _ = fields["remaining"].(int64)
	}
	return one, nil
}

func grpcClient(t *testing.T, address string, creds credentials.TransportCredentials) pb.RateLimitServiceClient {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewRateLimitServiceClient(conn)
}

// TestInterfacesGuarded runs the listeners with TLS, tokens and certificates of clients,
// on addresses that other machines reach.
func TestInterfacesGuarded(t *testing.T) {
	dir := t.TempDir()
	leaf := writeCertificate(t, dir+"/cert.pem", dir+"/key.pem", 1)
	tokens, operators := disk.Write(t, dir+"/tokens", serveToken), disk.Write(t, dir+"/operators", operatorToken)
	s := startServe(t, "-c", disk.Write(t, dir+"/stint.yaml", interfaceRules), "--http", "127.0.0.1:0", "--grpc", "0.0.0.0:0", "--resp", "0.0.0.0:0", "--resp-limits", "rules",
		"--tls-cert", dir+"/cert.pem", "--tls-key", dir+"/key.pem", "--tls-client-ca", dir+"/cert.pem", "--token-file", tokens, "--operator-token-file", operators)
	port := func(name string) string {
		line := s.next("interface=" + name)
		if !strings.Contains(line, "tls=true") {
			t.Error(line)
		}
		return "127.0.0.1:" + regexp.MustCompile(`address=\S+:(\d+)`).FindStringSubmatch(line)[1]
	}
	envoyAt, respAt := port("grpc"), port("resp")
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	pair, err := tls.LoadX509KeyPair(dir+"/cert.pem", dir+"/key.pem")
	if err != nil {
		t.Fatal(err)
	}
	shown := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}
	bare := &tls.Config{RootCAs: pool}

	envoy, stranger := grpcClient(t, envoyAt, credentials.NewTLS(shown)), grpcClient(t, envoyAt, credentials.NewTLS(bare))
	negative := envoyRequest("rls", question{map[string]string{"user": "ann"}, 1})
	negative.Descriptors[0].IsNegativeHits = true
	plain := envoyRequest("rls", question{map[string]string{"user": "ann"}, 1})
	for _, one := range []struct {
		client pb.RateLimitServiceClient
		token  string
		req    *pb.RateLimitRequest
		want   codes.Code
	}{
		{stranger, serveToken, plain, codes.Unavailable}, {envoy, "", plain, codes.Unauthenticated}, {envoy, serveToken, plain, codes.OK},
		{envoy, serveToken, negative, codes.PermissionDenied}, {envoy, operatorToken, negative, codes.OK},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if one.token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+one.token)
		}
		if _, err := one.client.ShouldRateLimit(ctx, one.req); status.Code(err) != one.want {
			t.Errorf("%v: want %v", err, one.want)
		}
		cancel()
	}
	for _, one := range []struct {
		tls   *tls.Config
		token string
		want  string
	}{
		{shown, serveToken, ""}, {shown, "wrong-0123456789abcdef", "WRONGPASS"}, {shown, "", "NOAUTH"}, {bare, serveToken, "certificate required"},
	} {
		client := redis.NewClient(&redis.Options{Addr: respAt, TLSConfig: one.tls, Password: one.token, MaxRetries: -1})
		err := client.Do(t.Context(), "CL.THROTTLE", "k", 1, 1, 1).Err()
		if one.want == "" && err != nil || one.want != "" && (err == nil || !strings.Contains(err.Error(), one.want)) {
			t.Errorf("redis with %q: %v, want %q", one.token, err, one.want)
		}
		_ = client.Close()
	}
	s.stop("")
}

// TestCallersLimitsBounded gives a limit of its own in each command, and in each descriptor
// of Envoy's service. Beyond a quarter of a part of the store a new one is an error, or over
// the limit; those that are known decide, and clients of a rule that were never seen pass.
func TestCallersLimitsBounded(t *testing.T) {
	rules := `rules: [{name: day, match: {user: true}, key: [user], limits: ["1 per day"]}]`
	s := startServe(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", rules), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--max-keys", "64000")
	envoy, over := grpcClient(t, s.at("interface=grpc"), insecure.NewCredentials()), 0
	client := redis.NewClient(&redis.Options{Addr: s.at("interface=resp"), ReadTimeout: patience}) // 5,000 commands at once
	defer client.Close()
	const given, most = 1500, 64000 / 64 / 4
	pipe, failed := client.Pipeline(), 0
	for i := range given {
		pipe.Do(t.Context(), "CL.THROTTLE", "k", 0, 1, 86400+i)
	}
	all, _ := pipe.Exec(t.Context())
	for _, c := range all {
		if err := c.Err(); err != nil {
			if failed++; !strings.Contains(err.Error(), "limits of cl.throttle still count") {
				t.Fatal(err)
			}
		}
	}
	if failed != given-most {
		t.Errorf("%d of %d limits are refused", failed, given)
	}
	if got, err := client.Do(t.Context(), "CL.THROTTLE", "new", 0, 1, 86400).Slice(); err != nil || got[0] != int64(0) {
		t.Errorf("a limit that is known: %v %v", got, err)
	}
	for i := range 2000 {
		pipe.Do(t.Context(), "STINT.CHECK", "user", i)
	}
	news, err := pipe.Exec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range news {
		if got, _ := c.(*redis.Cmd).Val().(map[any]any); got["allowed"] != true {
			t.Fatalf("newcomer %d: %v", i, got)
		}
	}

	for i := 0; i < given; i += 50 {
		req := &pb.RateLimitRequest{Domain: "own"}
		for k := range 50 {
			req.Descriptors = append(req.Descriptors, &ratelimit.RateLimitDescriptor{
				Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "k", Value: strings.Repeat("v", k+1)}},
				Limit:   &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: typev3.RateLimitUnit_DAY, UnitMultiplier: wrapperspb.UInt32(uint32(i + k + 1))},
			})
		}
		resp, err := envoy.ShouldRateLimit(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.GetOverallCode() == pb.RateLimitResponse_OVER_LIMIT {
			over++
		}
	}
	if want := (given - most) / 50; over < want || over > want+1 {
		t.Errorf("%d requests with limits beyond the bound are over the limit, want %d", over, want)
	}
	_ = client.Close()
}

// TestOTLP sends spans of sampled traces to a collector at the end.
func TestOTLP(t *testing.T) {
	var mu sync.Mutex
	got := make(map[string][]byte)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got[r.URL.Path] = append(got[r.URL.Path], body...)
	}))
	defer collector.Close()
	s := startServe(t, "-c", disk.Write(t, t.TempDir()+"/stint.yaml", serveRules), "--http", "127.0.0.1:0", "--otlp", collector.URL)
	const sampled, not = "0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319c"
	for _, parent := range []string{"00-" + sampled + "-b7ad6b7169203331-01", "00-" + not + "-b7ad6b7169203331-00", "", "nonsense"} {
		s.call(http.MethodPost, s.front+"/v1/check", `{"attributes":{"ip":"192.0.2.7"}}`, map[string]string{"Traceparent": parent})
	}
	s.stop("")
	mu.Lock()
	defer mu.Unlock()
	spans := got["/v1/traces"]
	for id, want := range map[string]int{sampled: 1, not: 0} {
		raw, _ := hex.DecodeString(id)
		if n := bytes.Count(spans, raw); n != want {
			t.Errorf("%d spans of trace %s, want %d", n, id, want)
		}
	}
	if bytes.Count(spans, []byte("stint.rate_limit")) == 0 || bytes.Contains(spans, []byte("192.0.2.7")) {
		t.Errorf("spans: %q", spans)
	}
}
