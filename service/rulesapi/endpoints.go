package rulesapi

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"

	"github.com/stint-dev/stint/service/rules"
)

const (
	pageSize = 100
	maxPage  = 1000
)

// number reads a parameter of the query, which is at least 0.
func (c *call) number(name string, otherwise int64) (int64, error) {
	text := c.query.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, &InputError{name, errors.New("want a whole number, at least 0")}
	}
	return n, nil
}

// page reads how many items a page may have.
func (c *call) page() (int, error) {
	n, err := c.number("n", pageSize)
	if err == nil && (n < 1 || n > maxPage) {
		err = &InputError{"n", fmt.Errorf("from 1 to %d", maxPage)}
	}
	return int(n), err
}

// parent reads If-Match: the revision that the caller changed.
func (c *call) parent() (int64, error) {
	lines := c.r.Header["If-Match"]
	if len(lines) != 1 {
		return 0, &requestError{http.StatusPreconditionRequired, `say with If-Match which revision you changed, such as "3"; "0" before the first, * for any`}
	}
	if lines[0] == "*" {
		return rulesdb.AnyVersion, nil
	}
	text, err := strconv.Unquote(lines[0])
	if err != nil {
		text = lines[0]
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, &requestError{http.StatusBadRequest, `If-Match: want the number of a revision, such as "3"`}
	}
	return n, nil
}

func (c *call) revision(status int, r rulesdb.Revision) (int, any, error) {
	c.w.Header().Set("ETag", fmt.Sprintf("%q", strconv.FormatInt(r.Number, 10)))
	return status, RevisionOf(r), nil
}

func (h *Handler) rules(c *call) (int, any, error) {
	n, err := c.number("version", 0)
	if err != nil {
		return 0, nil, err
	}
	r, err := h.editor.Revision(c.ctx, n)
	if err == nil {
		err = h.mayRead(c, r)
	}
	if err != nil {
		return 0, nil, err
	}
	return c.revision(http.StatusOK, r)
}

// A posted is a document as clients send it.
type posted struct {
	Name     string `json:"name"`
	Document string `json:"document"`
	Comment  string `json:"comment"`
}

func (p *posted) name() string {
	if p.Name == "" {
		return "stint.yaml"
	}
	return p.Name
}

func (h *Handler) publish(c *call) (int, any, error) {
	parent, err := c.parent()
	if err != nil {
		return 0, nil, err
	}
	var p posted
	if err := c.body(maxRules, &p); err != nil {
		return 0, nil, err
	}
	r, err := h.editor.Publish(c.ctx, parent, rulesdb.Revision{Author: c.author, Comment: p.Comment, Name: p.name(), Document: []byte(p.Document)})
	if err != nil {
		return 0, nil, err
	}
	r.Document = nil
	return c.revision(http.StatusCreated, r)
}

func (h *Handler) validate(c *call) (int, any, error) {
	var p posted
	if err := c.body(maxRules, &p); err != nil {
		return 0, nil, err
	}
	f, err := h.editor.Check(p.name(), []byte(p.Document))
	return http.StatusOK, rules.ReportOf(f, err), nil
}

func (h *Handler) diff(c *call) (int, any, error) {
	var p struct {
		posted
		Version int64 `json:"version"` // to compare with; 0 is the one in force
	}
	if err := c.body(maxRules, &p); err != nil {
		return 0, nil, err
	}
	held, err := InForce(c.ctx, h.editor)
	if err == nil && p.Version > 0 {
		held, err = h.editor.Revision(c.ctx, p.Version)
	}
	if err == nil {
		err = h.mayRead(c, held)
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, struct {
		Version int64  `json:"version"`
		Diff    string `json:"diff"`
	}{held.Number, Diff(fmt.Sprintf("revision %d", held.Number), p.name(), string(held.Document), p.Document)}, nil
}

func (h *Handler) history(c *call) (int, any, error) {
	before, err := c.number("before", 0)
	n, pageErr := c.page()
	if err := errors.Join(err, pageErr); err != nil {
		return 0, nil, err
	}
	all, err := h.editor.Revisions(c.ctx, before, n)
	return http.StatusOK, struct {
		Revisions []Revision `json:"revisions"`
	}{List(all, RevisionOf)}, err
}

func (h *Handler) rollback(c *call) (int, any, error) {
	parent, err := c.parent()
	if err != nil {
		return 0, nil, err
	}
	var to struct {
		Version int64  `json:"version"`
		Comment string `json:"comment"`
	}
	if err := c.body(maxBody, &to); err != nil {
		return 0, nil, err
	}
	if to.Version < 1 {
		return 0, nil, &InputError{"version", errors.New("want the number of the revision to go back to")}
	}
	r, err := h.editor.Rollback(c.ctx, parent, to.Version, c.author, to.Comment)
	if err != nil {
		return 0, nil, err
	}
	return c.revision(http.StatusCreated, r)
}

// done is the answer to a request that has no other result.
type done struct {
	Done bool `json:"done"`
}

func (h *Handler) accept(c *call) (int, any, error) {
	var why struct {
		Reason string `json:"reason"`
	}
	if err := c.body(maxBody, &why); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, done{true}, h.editor.Accept(c.ctx, c.author, why.Reason)
}

func (h *Handler) overrides(c *call) (int, any, error) {
	n, err := c.page()
	if err != nil {
		return 0, nil, err
	}
	p := rulesdb.Page{Rule: c.query.Get("rule"), Prefix: c.query.Get("prefix"), N: n}
	if after := c.query.Get("after"); after != "" {
		last, err := AfterPage(c.ctx, after)
		if err != nil {
			return 0, nil, err
		}
		p.AfterRule, p.AfterKey = last.Rule, last.Key
	}
	all, err := h.editor.Overrides(c.ctx, p)
	answer := struct {
		Overrides []*Override `json:"overrides"`
		Next      string      `json:"next,omitzero"`
	}{Overrides: List(all, h.editor.Noted(c.ctx))}
	if len(all) == n {
		answer.Next = NextPage(c.ctx, all[n-1])
	}
	if hashed(c.ctx) {
		for _, o := range answer.Overrides {
			h.hide(o)
		}
	}
	return http.StatusOK, answer, err
}

// turn lets one request at a time have all overrides on their way.
func (h *Handler) turn(c *call) (end func(), err error) {
	select {
	case h.loading <- struct{}{}:
		return func() { <-h.loading }, nil
	default:
		c.w.Header().Set("Retry-After", "10")
		return nil, &requestError{http.StatusServiceUnavailable, "nothing has changed: this server loads or exports the overrides of another request, and one at a time"}
	}
}

func (h *Handler) exportOverrides(c *call) (int, any, error) {
	if hashed(c.ctx) {
		return 0, nil, &requestError{http.StatusForbidden, "an export has the keys of clients, which are not shown here: stint override export writes it"}
	}
	end, err := h.turn(c)
	if err != nil {
		return 0, nil, err
	}
	defer end()
	to := &slowAnswer{to: c.w, control: http.NewResponseController(c.w)}
	err = h.editor.ExportOverrides(c.ctx, rulesdb.Page{Rule: c.query.Get("rule"), Prefix: c.query.Get("prefix")}, to)
	if err != nil && to.begun {
		h.failures.Error("operators API", "path", c.r.URL.Path, "error", err)
		panic(http.ErrAbortHandler) // or what there is would pass for the whole
	}
	return 0, nil, err
}

// A slowAnswer is an answer that may take long, as long as more of it is read.
type slowAnswer struct {
	to      http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

func (a *slowAnswer) Write(p []byte) (int, error) {
	if !a.begun {
		a.to.Header().Set("Content-Type", "text/csv; charset=utf-8")
		a.begun = true
	}
	_ = a.control.SetWriteDeadline(time.Now().Add(moreWithin)) // in a test there is no server
	return a.to.Write(p)
}

func (h *Handler) loadOverrides(c *call) (int, any, error) {
	if c.r.Header.Get("Content-Encoding") != "" {
		return 0, nil, &requestError{http.StatusUnsupportedMediaType, "the body is encoded: send CSV as it is, without Content-Encoding"}
	}
	end, err := h.turn(c)
	if err != nil {
		return 0, nil, err
	}
	defer end()
	n, err := h.editor.LoadOverrides(c.ctx, c.author, &slowBody{c.r.Body, http.NewResponseController(c.w)}, nil)
	if err == nil {
		h.log.Info("operator", "act", "overrides load", "author", c.author, "overrides", n.Set)
	}
	return http.StatusOK, n, err
}

// A slowBody is a body that may take long, as long as more of it keeps coming.
type slowBody struct {
	from    io.Reader
	control *http.ResponseController
}

func (b *slowBody) Read(p []byte) (int, error) {
	_ = b.control.SetReadDeadline(time.Now().Add(moreWithin)) // an error means a test without a server
	n, err := b.from.Read(p)
	switch late, ok := errors.AsType[net.Error](err); {
	case err == nil:
	case err == io.EOF:
		_ = b.control.SetReadDeadline(time.Time{}) // otherwise the deadline would end the request while the load runs
	case ok && late.Timeout():
		err = &requestError{http.StatusRequestTimeout, fmt.Sprintf("nothing has changed: no more of the body came for %v", moreWithin)}
	default:
		err = &requestError{http.StatusBadRequest, "nothing has changed: the body ended too early"}
	}
	return n, err
}

// customer returns the customer that the query names.
func (c *call) customer() Customer {
	return Customer{Key: c.query.Get("key"), Attributes: c.query["attribute"], Exact: c.r.Header.Get(exactKey) != ""}
}

// customer returns the rule and the key that the query names. With held, the rule of the key may be
// gone.
func (h *Handler) customer(c *call, held bool) (rule, key string, err error) {
	rule = c.query.Get("rule")
	if rule == "" {
		return "", "", &InputError{"rule", errors.New("missing")}
	}
	if len(c.query["key"]) > 1 || len(c.query["rule"]) > 1 {
		return "", "", &InputError{"key", errors.New("one rule and one key")}
	}
	who := c.customer()
	if held {
		key, err = h.editor.HeldKey(c.ctx, rule, who)
	} else {
		key, err = h.editor.Key(c.ctx, rule, who)
	}
	return rule, key, err
}

func (h *Handler) override(c *call) (int, any, error) {
	rule, key, err := h.customer(c, true)
	if err != nil {
		return 0, nil, err
	}
	o, err := h.editor.Override(c.ctx, rule, key)
	return http.StatusOK, h.editor.Noted(c.ctx)(o), err
}

// An overrideRequest is a customer's override as clients send it.
type overrideRequest struct {
	Limits    []string `json:"limits"`
	Unlimited bool     `json:"unlimited"`
	Block     bool     `json:"block"`
	For       string   `json:"for"`
	Reason    string   `json:"reason"`
}

// A changed is an override after and before a change; null for none.
type changed struct {
	Now *Override `json:"now"`
	Was *Override `json:"was"`
	// BanEnded reports whether a ban was ended.
	BanEnded bool `json:"ban_ended,omitzero"`
	// Note is the result of [Editor.Consequences].
	Note string `json:"note,omitzero"`
}

func (h *Handler) set(c *call, a overrideRequest, removed bool) (int, any, error) {
	lasts, err := ParseLasts(a.For)
	if err != nil {
		return 0, nil, &InputError{"for", err}
	}
	rule, key, err := h.customer(c, removed)
	if err != nil {
		return 0, nil, err
	}
	was, now, err := h.editor.SetOverride(c.ctx, rulesource.Override{Rule: rule, Key: key, Limits: a.Limits, Unlimited: a.Unlimited,
		Block: a.Block, Removed: removed, Reason: a.Reason, Author: c.author}, lasts)
	return h.changed(c, was, now, err)
}

// changed answers a change of an override, and logs it.
func (h *Handler) changed(c *call, was, now rulesource.Override, err error) (int, any, error) {
	if err != nil {
		return 0, nil, err
	}
	h.logOverride(c, now)
	return http.StatusOK, changed{Now: OverrideOf(now), Was: OverrideOf(was), Note: h.editor.Consequences(c.ctx, now)}, nil
}

// logOverride logs that an override was set or removed, without its key.
func (h *Handler) logOverride(c *call, o rulesource.Override) {
	act := "override set"
	switch {
	case o.Removed:
		act = "override remove"
	case o.Block:
		act = "block"
	}
	attrs := []any{"act", act, "author", c.author, "rule", o.Rule}
	if h.keyHash != nil {
		attrs = append(attrs, "key_hash", h.keyHash(o.Rule, o.Key))
	}
	h.log.Info("operator", attrs...)
}

func (h *Handler) putOverride(c *call) (int, any, error) {
	var a overrideRequest
	if err := c.body(maxBody, &a); err != nil {
		return 0, nil, err
	}
	return h.set(c, a, false)
}

func (h *Handler) deleteOverride(c *call) (int, any, error) {
	return h.set(c, overrideRequest{Reason: c.query.Get("reason")}, true)
}

func (h *Handler) block(c *call) (int, any, error) {
	var b struct {
		For    string `json:"for"`
		Reason string `json:"reason"`
	}
	if err := c.body(maxBody, &b); err != nil {
		return 0, nil, err
	}
	return h.set(c, overrideRequest{Block: true, For: b.For, Reason: b.Reason}, false)
}

func (h *Handler) unblock(c *call) (int, any, error) {
	rule, key, err := h.customer(c, true)
	if err != nil {
		return 0, nil, err
	}
	reason := c.query.Get("reason")
	if err := rulesdb.CheckReason(reason); err != nil {
		return 0, nil, err
	}
	ended, err := h.unban(c.ctx, c.author, rule, key, reason)
	if err != nil {
		return 0, nil, err
	}
	was, now, _, err := h.editor.Unblock(c.ctx, rulesource.Override{Rule: rule, Key: key, Reason: reason, Author: c.author})
	if _, other := errors.AsType[*InputError](err); ended && (other || errors.Is(err, rulesdb.ErrNotFound)) {
		held, err := h.editor.Override(c.ctx, rule, key) // reads it, without changing it
		if errors.Is(err, rulesdb.ErrNotFound) {
			return http.StatusOK, changed{BanEnded: true}, nil
		}
		return http.StatusOK, changed{Now: OverrideOf(held), Was: OverrideOf(held), BanEnded: true}, err
	}
	if err != nil {
		return 0, nil, err
	}
	h.logOverride(c, now)
	return http.StatusOK, changed{Now: OverrideOf(now), Was: OverrideOf(was), BanEnded: ended}, nil
}

func (h *Handler) nodes(c *call) (int, any, error) {
	within := 10 * time.Minute
	if text := c.query.Get("within"); text != "" {
		var err error
		if within, err = time.ParseDuration(text); err != nil || within < 0 {
			return 0, nil, &InputError{"within", errors.New("want a time such as 10m; 0s is all")}
		}
	}
	all, err := h.editor.Nodes(c.ctx, within)
	return http.StatusOK, struct {
		Nodes []Node `json:"nodes"`
	}{Nodes(all, c.role != rulesdb.Viewer && !hashed(c.ctx))}, err
}

func (h *Handler) audit(c *call) (int, any, error) {
	before, err := c.number("before", 0)
	n, pageErr := c.page()
	if err := errors.Join(err, pageErr); err != nil {
		return 0, nil, err
	}
	all, err := h.editor.Audit(c.ctx, before, n)
	acts := List(all, func(d rulesdb.AuditEntry) auditEntry { return auditEntry{AuditEntry: d} })
	if hashed(c.ctx) {
		for i := range acts {
			h.hideSubject(&acts[i])
		}
	}
	return http.StatusOK, struct {
		Acts []auditEntry `json:"acts"`
	}{acts}, err
}

func (h *Handler) tokens(c *call) (int, any, error) {
	all, err := h.editor.Tokens(c.ctx)
	return http.StatusOK, struct {
		Tokens []rulesdb.Token `json:"tokens"`
	}{append([]rulesdb.Token{}, all...)}, err
}

func (h *Handler) makeToken(c *call) (int, any, error) {
	var t struct {
		Name string `json:"name"`
		Role string `json:"role"`
		For  string `json:"for"`
	}
	if err := c.body(maxBody, &t); err != nil {
		return 0, nil, err
	}
	lasts, err := ParseLasts(t.For)
	switch {
	case err != nil:
		return 0, nil, &InputError{"for", err}
	case t.Name == "":
		return 0, nil, &InputError{"name", errors.New("missing: whose token is it?")}
	case !slices.Contains([]string{"viewer", "operator", "admin"}, t.Role):
		return 0, nil, &InputError{"role", errors.New("want viewer, operator or admin")}
	}
	text, err := h.editor.NewToken(c.ctx, c.author, t.Name, rulesdb.Role(t.Role), lasts)
	return http.StatusCreated, struct {
		Token string `json:"token"`
	}{text}, err
}

func (h *Handler) revokeToken(c *call) (int, any, error) {
	return http.StatusOK, done{true}, h.editor.RevokeToken(c.ctx, c.author, c.query.Get("name"))
}
