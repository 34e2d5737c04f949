package rulesapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/stint-dev/stint/internal/ports"
	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/server"
)

// callTimeout is how long a server may take to answer. It is longer than a server takes to report
// that its database did not answer.
const callTimeout = actWithin + 2*answerWithin

// A Client is a [Backend] behind the HTTP API of a server, which takes the author from the token.
// Its methods may be called from many goroutines at once. Errors begin with the server's address. A
// refused request is [rulesdb.ErrInput], [rulesdb.ErrNotFound] or [rulesdb.ErrConflict]; a change
// whose answer was lost is [rulesdb.ErrAmbiguous].
type Client struct {
	base  string
	token string
	http  *http.Client
	exact bool // keys are made by the rules, and not as people write them
}

// exactKey is the header of requests whose key was made by the rule; see [Customer].
const exactKey = "Stint-Exact-Key"

// Dial returns the Client of a server, by the address of its API and a file with a token; with ""
// it sends none. It does not connect. Over http it sends a token only to this machine.
func Dial(server, tokenFile string) (*Client, error) {
	u, err := Address(server)
	if err != nil {
		return nil, err
	}
	if tokenFile != "" && u.Scheme == "http" && !Loopback(u) {
		return nil, fmt.Errorf("%s: a token would go over the network in clear: use https", u.Host)
	}
	c := &Client{base: strings.TrimSuffix(u.String(), "/")}
	if tokenFile != "" {
		if c.token, err = readToken(tokenFile); err != nil {
			return nil, fmt.Errorf("the token's file: %w", err)
		}
	}
	c.http = &http.Client{Timeout: callTimeout, Transport: http.DefaultTransport.(*http.Transport).Clone(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

// readToken reads the token of one person.
func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	token := strings.TrimSpace(string(text))
	switch {
	case err != nil:
		return "", err
	case server.NamesHolder([]byte(token)):
		return "", fmt.Errorf("%s has hashes of tokens, for a server: write the token that stint token make has printed into a file of yours", file)
	case strings.ContainsAny(token, "\r\n"):
		return "", fmt.Errorf("%s has several lines: write your token alone into a file", file)
	}
	return token, nil
}

// Address parses the address of a server's API.
func Address(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if _, _, bare := net.SplitHostPort(text); bare == nil && !strings.Contains(text, "/") {
		scheme := "https://"
		if Loopback(&url.URL{Host: text}) {
			scheme = "http://"
		}
		return nil, fmt.Errorf("write %s%s", scheme, text)
	}
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("want an address such as https://10.0.0.1:9090")
	}
	return u, ports.Check(u)
}

// WithExtraTime returns the Client with more time for each answer.
func (c *Client) WithExtraTime(more time.Duration) *Client {
	patient, calls := *c, *c.http
	calls.Timeout += more
	patient.http = &calls
	return &patient
}

// Loopback reports whether an address is of this machine.
func Loopback(u *url.URL) bool {
	addr, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && addr.IsLoopback()
}

// String returns the address of the server.
func (c *Client) String() string { return c.base }

// Close closes idle connections. The Client may be used again.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// A refusalError is a problem document from a server. It matches the errors of [rulesdb].
type refusalError struct {
	status int
	field  string
	detail string
}

func (e *refusalError) Error() string {
	if e.status == http.StatusUnauthorized || strings.Contains(e.detail, ", and yours is ") {
		return e.detail + "; --token-file FILE has your token"
	}
	if e.field != "" {
		return e.field + ": " + e.detail
	}
	return e.detail
}

func (e *refusalError) Is(target error) bool {
	switch e.status {
	case http.StatusPreconditionFailed:
		return target == rulesdb.ErrConflict
	case http.StatusNotFound:
		return target == rulesdb.ErrNotFound
	case http.StatusUnprocessableEntity:
		return target == rulesdb.ErrInput
	case http.StatusGatewayTimeout:
		return target == rulesdb.ErrAmbiguous
	}
	return false
}

// call sends a request and decodes the answer. match is If-Match, unless it is below
// [rulesdb.AnyVersion].
func (c *Client) call(ctx context.Context, method, path string, query url.Values, match int64, body, into any) error {
	sent, stream := body.(io.Reader)
	if body != nil && !stream {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	changes := method != http.MethodGet && path != "/v1/inspect" && path != "/v1/rehearse"
	asked := false // whether the server may have got a request that changes something
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { asked = changes }})
	r, err := http.NewRequestWithContext(ctx, method, c.base+path+"?"+query.Encode(), sent)
	if err != nil {
		return err
	}
	if c.exact {
		r.Header.Set(exactKey, "1")
	}
	if stream {
		r.Header.Set("Content-Type", "text/csv")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if match == rulesdb.AnyVersion {
		r.Header.Set("If-Match", "*")
	} else if match >= 0 {
		r.Header.Set("If-Match", strconv.Quote(strconv.FormatInt(match, 10)))
	}
	resp, err := c.http.Do(r)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op
		}
		return c.failed(err, asked)
	}
	defer resp.Body.Close()                        // the body has been read, or is not wanted
	if resp.Header.Get(server.AdminHeader) == "" { // perhaps a gateway's, which has asked a stint
		return c.failed(fmt.Errorf("answered %s, and not as the --admin address of a stint does", resp.Status), asked && resp.StatusCode >= 500)
	}
	decoder := json.NewDecoder(io.LimitReader(resp.Body, 2*maxRules))
	if resp.StatusCode/100 != 2 {
		var p struct{ Detail, Field string }
		if decoder.Decode(&p) != nil || p.Detail == "" {
			p.Detail = "answered " + resp.Status
		}
		return fmt.Errorf("%s: %w", c.base, &refusalError{resp.StatusCode, p.Field, p.Detail})
	}
	if to, is := into.(io.Writer); is {
		_, err = io.Copy(to, resp.Body)
	} else {
		err = decoder.Decode(into)
	}
	if err != nil {
		return c.failed(fmt.Errorf("the answer: %w", err), asked)
	}
	return nil
}

// failed names the server that did not answer, and says whether it may have done what was asked.
func (c *Client) failed(err error, asked bool) error {
	if asked {
		err = fmt.Errorf("%w: %w", rulesdb.ErrAmbiguous, err)
	}
	return fmt.Errorf("%s: %w", c.base, err)
}

// Call sends any request of the API; see [Route].
func (c *Client) Call(ctx context.Context, method, path string, query url.Values, body, into any) error {
	return c.call(ctx, method, path, query, noMatch, body, into)
}

// noMatch is for calls without If-Match.
const noMatch = rulesdb.AnyVersion - 1

func (c *Client) get(ctx context.Context, path string, query url.Values, into any) error {
	return c.call(ctx, http.MethodGet, path, query, noMatch, nil, into)
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// Revision returns a revision of the rules with its document; 0 is the one in force. The error is
// [rulesdb.ErrNotFound] if it does not exist.
func (c *Client) Revision(ctx context.Context, n int64) (rulesdb.Revision, error) {
	var r Revision
	err := c.get(ctx, "/v1/rules", url.Values{"version": {number(n)}}, &r)
	return r.revision(), err
}

// Revisions returns up to n revisions before a number, newest first, without their documents; 0
// begins with the newest.
func (c *Client) Revisions(ctx context.Context, before int64, n int) ([]rulesdb.Revision, error) {
	var all struct{ Revisions []*Revision }
	err := c.get(ctx, "/v1/rules/history", url.Values{"before": {number(before)}, "n": {strconv.Itoa(n)}}, &all)
	return List(all.Revisions, (*Revision).revision), err
}

// Publish puts a document in force as the next revision, and returns that. The error is
// [rulesdb.ErrConflict] if the revision in force is not parent, and [rulesdb.ErrInput] for rules
// that nodes could not use.
func (c *Client) Publish(ctx context.Context, parent int64, r rulesdb.Revision) (rulesdb.Revision, error) {
	var now Revision
	err := c.call(ctx, http.MethodPost, "/v1/rules", nil, parent, posted{r.Name, string(r.Document), r.Comment}, &now)
	out := now.revision()
	out.Document = r.Document
	return out, err
}

// Rollback publishes again, as a new revision, the document of the revision whose number is to. The errors are those of
// [Client.Publish], and [rulesdb.ErrNotFound].
func (c *Client) Rollback(ctx context.Context, parent, to int64, _, comment string) (rulesdb.Revision, error) {
	var now Revision
	err := c.call(ctx, http.MethodPost, "/v1/rules/rollback", nil, parent, map[string]any{"version": to, "comment": comment}, &now)
	return now.revision(), err
}

// Accept makes nodes take the state of the database although they may hold a newer one; see
// [rulesdb.DB.Accept].
func (c *Client) Accept(ctx context.Context, _, reason string) error {
	return c.call(ctx, http.MethodPost, "/v1/rules/accept", nil, noMatch, map[string]any{"reason": reason}, &done{})
}

// Override returns the override of a key under a rule. The error is
// [rulesdb.ErrNotFound] if there is none.
func (c *Client) Override(ctx context.Context, rule, key string) (rulesource.Override, error) {
	var o *Override
	err := c.byKey().get(ctx, "/v1/override", keyQuery(rule, key), &o)
	return o.override(), err
}

// byKey returns the Client for keys that the rules have made.
func (c *Client) byKey() *Client {
	k := *c
	k.exact = true
	return &k
}

func keyQuery(rule, key string) url.Values { return url.Values{"rule": {rule}, "key": {key}} }

// Overrides returns a page of overrides that are in force, in the order of rules and keys.
func (c *Client) Overrides(ctx context.Context, p rulesdb.Page) ([]rulesource.Override, error) {
	query := url.Values{"rule": {p.Rule}, "prefix": {p.Prefix}}
	if p.N > 0 {
		query.Set("n", strconv.Itoa(p.N))
	}
	if p.AfterRule != "" {
		query.Set("after", cursor(p.AfterRule, p.AfterKey))
	}
	var all struct{ Overrides []*Override }
	err := c.get(ctx, "/v1/overrides", query, &all)
	return List(all.Overrides, (*Override).override), err
}

// SetOverride sets an override for a time, 0 for good, or removes it if it is Removed. It returns
// the override before and the new one. The error is [rulesdb.ErrInput] for an override that the
// rules cannot use, and [rulesdb.ErrNotFound] if there is none to remove.
func (c *Client) SetOverride(ctx context.Context, o rulesource.Override, lasts time.Duration) (was, now rulesource.Override, err error) {
	query := keyQuery(o.Rule, o.Key)
	var out changed
	if o.Removed {
		query.Set("reason", o.Reason)
		err = c.byKey().call(ctx, http.MethodDelete, "/v1/override", query, noMatch, nil, &out)
	} else {
		a := overrideRequest{Limits: o.Limits, Unlimited: o.Unlimited, Block: o.Block, Reason: o.Reason}
		if lasts > 0 {
			a.For = lasts.String()
		}
		err = c.byKey().call(ctx, http.MethodPut, "/v1/override", query, noMatch, a, &out)
	}
	return out.Was.override(), out.Now.override(), err
}

// loadOverrides sends overrides as CSV. Progress counts the lines that were sent.
func (c *Client) loadOverrides(ctx context.Context, from io.Reader, progress func(read, inForce int)) (out Loaded, err error) {
	err = c.WithExtraTime(loadWithin).call(ctx, http.MethodPost, "/v1/overrides", nil, noMatch, &sending{from: from, progress: progress}, &out)
	if unread, ok := errors.AsType[*unreadError](err); ok { // reading the file failed, so the server did not get its end
		return Loaded{}, unread.error
	}
	return out, err
}

// exportOverrides receives overrides as CSV.
func (c *Client) exportOverrides(ctx context.Context, p rulesdb.Page, to io.Writer) error {
	query := url.Values{"rule": {p.Rule}, "prefix": {p.Prefix}}
	return c.WithExtraTime(loadWithin).get(ctx, "/v1/overrides.csv", query, to)
}

// An unreadError is the error of reading a file that is being sent.
type unreadError struct{ error }

// A sending is a reader that counts lines.
type sending struct {
	from     io.Reader
	lines    int
	progress func(read, inForce int)
}

func (s *sending) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	before := s.lines
	s.lines += bytes.Count(p[:n], []byte("\n"))
	if s.progress != nil && (before/progressLines < s.lines/progressLines || err != nil) {
		s.progress(s.lines, 0)
	}
	if err != nil && err != io.EOF {
		err = &unreadError{err}
	}
	return n, err
}

// progressLines is after how many lines progress is reported.
const progressLines = 10_000

// unblock calls [Editor.Unblock] on the server.
func (c *Client) unblock(ctx context.Context, o rulesource.Override) (was, now rulesource.Override, banEnded bool, err error) {
	query := keyQuery(o.Rule, o.Key)
	query.Set("reason", o.Reason)
	var out changed
	err = c.byKey().call(ctx, http.MethodDelete, "/v1/block", query, noMatch, nil, &out)
	return out.Was.override(), out.Now.override(), out.BanEnded, err
}

// Nodes returns the nodes that reported to the database within a time, 0 for all. If the rules are
// in a file, it returns only the server.
func (c *Client) Nodes(ctx context.Context, within time.Duration) ([]rulesdb.Node, error) {
	var all struct{ Nodes []*Node }
	err := c.get(ctx, "/v1/nodes", url.Values{"within": {within.String()}}, &all)
	return List(all.Nodes, (*Node).node), err
}

// Audit returns up to n acts before a number, newest first; 0 begins with the newest.
func (c *Client) Audit(ctx context.Context, before int64, n int) ([]rulesdb.AuditEntry, error) {
	var all struct{ Acts []rulesdb.AuditEntry }
	err := c.get(ctx, "/v1/audit", url.Values{"before": {number(before)}, "n": {strconv.Itoa(n)}}, &all)
	return all.Acts, err
}

// errAlone is the error of methods that only a server can carry out.
var errAlone = errors.New("a server alone does this: ask for an act that it has")

// Note fails: a server itself records its acts in the audit.
func (c *Client) Note(context.Context, rulesdb.Act) error { return errAlone }

// NoteAct fails like [Client.Note].
func (c *Client) NoteAct(context.Context, rulesdb.Act, func(context.Context, *rulesdb.Act) error) error {
	return errAlone
}

// NoteUndo fails like [Client.Note].
func (c *Client) NoteUndo(context.Context, int64, func(context.Context, time.Time) (rulesdb.Act, error)) error {
	return errAlone
}

// UndoOverrides fails like [Client.Note].
func (c *Client) UndoOverrides(context.Context, int64, string) (string, error) { return "", errAlone }

// SetOverrideIf fails, since its condition cannot be sent. See [Editor.Unblock].
func (c *Client) SetOverrideIf(context.Context, rulesource.Override, time.Duration, func(rulesource.Override) error) (was, now rulesource.Override, err error) {
	return was, now, errAlone
}

// NewToken makes a token with a role, for a time, 0 for good, and returns its text, which is shown
// only once. The caller needs the role admin.
func (c *Client) NewToken(ctx context.Context, _, name string, role rulesdb.Role, lasts time.Duration) (string, error) {
	ask := map[string]string{"name": name, "role": string(role)}
	if lasts > 0 {
		ask["for"] = lasts.String()
	}
	var out struct{ Token string }
	err := c.call(ctx, http.MethodPost, "/v1/tokens", nil, noMatch, ask, &out)
	return out.Token, err
}

// RevokeToken revokes all tokens with a name. The error is [rulesdb.ErrNotFound] if there are none.
func (c *Client) RevokeToken(ctx context.Context, _, name string) error {
	return c.call(ctx, http.MethodDelete, "/v1/token", url.Values{"name": {name}}, noMatch, nil, &done{})
}

// Tokens returns all tokens, by name, without their texts.
func (c *Client) Tokens(ctx context.Context) ([]rulesdb.Token, error) {
	var all struct{ Tokens []rulesdb.Token }
	err := c.get(ctx, "/v1/tokens", nil, &all)
	return all.Tokens, err
}
