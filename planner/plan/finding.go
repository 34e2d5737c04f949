package plan

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/stint-dev/stint"
	"github.com/stint-dev/stint/internal/wording"
)

// A Finding is something to know about a log before believing the report.
type Finding struct {
	// What is its kind: one_client, no_address, no_key, each_once, proxy, twice, zone, far_off,
	// cut_off, nuls, not_whole, not_found, future, unreadable, too_little, whole_seconds, refused,
	// one_path, burst, aside.
	What string `json:"what"`
	Text string `json:"text"`
	// Stops reports whether the finding forbids a proposal.
	Stops bool `json:"stops"`
}

// The least that a log must have for a proposal.
const (
	leastRequests = 1000
	leastClients  = 20
	leastSpan     = 10 * time.Minute
)

// mostlyOf is the fraction of all requests that counts as nearly all.
const mostlyOf = 0.98

// findings looks at the logs, and where clients are counted also at what identifies them.
func (r *reading) findings() (all []Finding) {
	add := adder(&all)
	r.logs(add)
	if r.requests > 0 {
		r.keys(add)
	}
	if names := r.leaves.unmet(); len(names) > 0 {
		add("not_found", false, "no request is of %s, which should be left out: no rule is written for it", strings.Join(names, ", "))
	}
	switch {
	case r.requests == 0:
		add("too_little", true, "nothing to go by: no request")
	case r.options.Choose != nil:
		r.little(add)
		r.carries(add)
	}
	slices.SortStableFunc(all, func(a, b Finding) int { // findings that stop are first
		if a.Stops == b.Stops {
			return 0
		} else if a.Stops {
			return -1
		}
		return 1
	})
	return all
}

// logs looks at the logs themselves.
func (r *reading) logs(add finder) {
	r.twice(add)
	r.unreadable(add)
	r.times(add)
	for _, in := range r.inputs {
		if in.about.Error != "" {
			add("not_whole", true, "%s was not read to its end (%s): its last requests are missing, and with them perhaps its peak", in.about.Name, in.about.Error)
		}
		if in.cut > 0 {
			add("cut_off", false, "%s ends in the middle of a line: it is cut off, or still being written", in.about.Name)
		}
		if in.about.NULs > 0 {
			add("nuls", false, "%s begins with %s: it was cut in place while its server wrote on, and what stood there is lost", in.about.Name, wording.Count(in.about.NULs, "NUL byte"))
		}
	}
}

// there lists what the lines of a log can be keyed by: named fields, or the attributes of their
// format.
func (in *input) there() string {
	if names := in.format.Fields; len(names) > 0 {
		return ". The fields are " + strings.Join(names, ", ")
	}
	if names := in.format.Attributes(in.head); len(names) > 0 {
		return ". Its lines have " + strings.Join(names, ", ")
	}
	return ""
}

// A finder records a finding.
type finder func(what string, stops bool, format string, args ...any)

func adder(to *[]Finding) finder {
	return func(what string, stops bool, format string, args ...any) {
		*to = append(*to, Finding{what, fmt.Sprintf(format, args...), stops})
	}
}

// shortHead is how long the beginnings of two logs must be before their being equal means
// something.
const shortHead = 200

// twice finds logs that are given more than once: their beginnings are equal.
func (r *reading) twice(add finder) {
	for i, a := range r.inputs {
		for _, b := range r.inputs[:i] {
			n := min(len(a.head), len(b.head))
			if n >= shortHead && bytes.Equal(a.head[:n], b.head[:n]) && a.first > 0 {
				add("twice", true, "%s and %s begin with the same lines: the same requests count twice. Name each log once", b.about.Name, a.about.Name)
				return
			}
		}
	}
}

// keys looks at the keys of clients.
func (r *reading) keys(add finder) {
	o := r.options
	for i, n := range r.missing {
		name := r.extraction.attributes[r.extraction.key[i]]
		if n*2 <= r.requests+r.excluded {
			continue
		}
		text := fmt.Sprintf("%s of %s had no %s", wording.Grouped(n), wording.Grouped(r.requests+r.excluded), name)
		if name == "ip" && len(o.Client.Trusted) == 0 && slices.ContainsFunc(r.inputs, forwards) {
			text += ", but X-Forwarded-For, whose last address asked the server. Say which proxies to trust there, such as --trusted-proxies 10.0.0.0/8"
		} else if text += r.inputs[0].there(); len(r.inputs[0].format.Fields) > 0 {
			text += fmt.Sprintf(": say which it is, such as --field %s=%s", name, r.inputs[0].format.Likely(name, r.inputs[0].head))
		}
		add("no_key", true, "%s", text)
		return
	}
	clients, top := 0, uint32(0)
	for id, n := range r.sent {
		if !r.ignored[id] {
			clients++
			if r.ignored[top] || n > r.sent[top] {
				top = uint32(id)
			}
		}
	}
	if o.keyText() == "ip" {
		r.addresses(add, top)
	}
	most := int64(r.sent[top])
	switch {
	case clients == 1 && r.requests > 1:
		add("one_client", true, "all requests are of one %s, %s: what others would send cannot be seen", o.keyText(), r.name(top))
	case float64(most) > mostlyOf*float64(r.requests):
		add("one_client", true, "%s of all requests are of one %s, %s: leave it out with --ignore-key, or with --exempt if it is to be let through", share(most, r.requests), o.keyText(), r.name(top))
	case most*2 > r.requests && clients > 1:
		add("one_client", false, "%s of all requests are of one %s, %s", share(most, r.requests), o.keyText(), r.name(top))
	case r.requests >= 100 && float64(clients) > mostlyOf*float64(r.requests):
		add("each_once", true, "there are %s and %s: nearly each has its own %s, such as %s, so it tells no clients apart", wording.Count(r.requests, "request"), wording.Count(int64(clients), "client"), o.keyText(), r.name(top))
	}
}

// addresses looks at keys that should be addresses.
func (r *reading) addresses(add finder, top uint32) {
	var names, others, private int64
	example, odd := "", ""
	for id, n := range r.sent {
		if r.ignored[id] {
			continue
		}
		name := r.name(uint32(id))
		addr := prefixOf(name)
		switch {
		case addr.IsValid() && addr.Addr().IsPrivate():
			private += int64(n)
		case addr.IsValid():
		case strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789.-_") == "":
			names, example = names+int64(n), name
		default:
			others, odd = others+int64(n), name
		}
	}
	if others*20 > r.requests {
		if odd == missing {
			odd = "nothing"
		} else {
			odd = "such as " + clip(odd, 60)
		}
		add("no_address", true, "%s have no address where the client's should be, but %s", wording.Count(others, "request"), odd)
	} else if names*20 > r.requests {
		add("no_address", false, "clients are named, such as %s, where rules will see addresses: several addresses may share a name", example)
	}
	if private*10 > r.requests*9 && len(r.options.Client.Trusted) == 0 && int(private) > 0 && slices.ContainsFunc(r.inputs, forwards) {
		addr := prefixOf(r.name(top))
		add("proxy", true, "nearly all requests come from private addresses, such as %s, and the log has X-Forwarded-For: they came through proxies. Say which to trust, such as --trusted-proxies %s", r.name(top), around(addr))
	}
}

// around returns the private range that an address belongs to.
func around(p netip.Prefix) string {
	for _, text := range []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"} {
		if r := netip.MustParsePrefix(text); r.Contains(p.Addr()) {
			return text
		}
	}
	return p.String()
}

// forwards reports whether the lines of a log name the clients of proxies.
func forwards(in *input) bool { return in.forwarded }

// clockRoom is how much later than its last line a log must have been written to count as later.
const clockRoom = 10 * time.Minute

// times looks at the times of requests.
func (r *reading) times(add finder) {
	for _, in := range r.inputs {
		if ahead := time.Unix(0, r.last).Sub(in.written); len(r.inputs) == 1 && r.requests > 0 && !in.written.IsZero() && ahead > clockRoom && ahead < 15*time.Hour {
			add("zone", false, "the last line is of %s after %s was written: its times may be of another zone, which --tz says", Duration(ahead.Round(time.Minute)), in.about.Name)
		}
	}
	r.ahead(add)
	r.farOff(add)
}

// Requests are far off, with a wrong date, if they are at most a hundredth of all, at one end, and
// their distance from the rest is nine times the length of the rest, or a day.
const (
	farPart  = 100
	farGap   = 9
	leastGap = int64(24 * time.Hour)
)

// farOff looks for requests that are far from the others in time.
func (r *reading) farOff(add finder) {
	n := len(r.events)
	if n < farPart {
		return
	}
	from, to := r.events[n/farPart].at, r.events[n-1-n/farPart].at
	gap := max(farGap*(to-from), leastGap)
	early := sort.Search(n, func(i int) bool { return r.events[i].at >= from-gap })
	late := n - sort.Search(n, func(i int) bool { return r.events[i].at > to+gap })
	var hints []string
	if early > 0 {
		hints = append(hints, "--from "+r.options.when(r.events[early].at).Format(time.DateOnly))
	}
	if late > 0 {
		hints = append(hints, "--to "+r.options.when(r.events[n-1-late].at).AddDate(0, 0, 1).Format(time.DateOnly))
	}
	if len(hints) > 0 {
		add("far_off", false, "far from all the others in time: %s. If the date is wrong, leave that out, such as with %s", wording.Count(int64(early+late), "request"), strings.Join(hints, " "))
	}
}

// unreadable reports that too many lines could not be read, or that these may hold too many requests. As in the
// sample by which the format was recognised, nearly all must be readable.
func (r *reading) unreadable(add finder) {
	t := &r.tally
	if all := t.lines - t.bad + t.lost; t.bad <= max(t.lines/20, 1) && t.lost > max(all/20, 1) {
		add("unreadable", true, "%s of all requests may be in lines that could not be read, such as the first above: what they would say is missing. Bring each to a line of its own", share(t.lost, all))
	} else if t.bad > max(t.lines/20, 1) {
		add("unreadable", true, "%s of all lines could not be read, such as the first above: what they would say is missing. If they are in another format, take them apart", share(t.bad, t.lines))
	}
}

// Whole seconds are too coarse for limits whose period is shorter than fewWhole.
const fewWhole = 10 * time.Second

// wholeSeconds reports limits with short periods on times without fractions of a second.
func (w *run) wholeSeconds(add finder) {
	for _, text := range w.options.Limits {
		if l, err := stint.Parse(text); err == nil && w.requests > 0 && w.tally.subsecond == 0 && l.Period() <= fewWhole {
			add("whole_seconds", false, "%s", wholeSeconds)
			return
		}
	}
}

// ahead looks for requests with times long after the logs were written.
func (r *reading) ahead(add finder) {
	written := time.Time{}
	for _, in := range r.inputs {
		if in.written.IsZero() {
			return
		}
		if in.written.After(written) {
			written = in.written
		}
	}
	if last := time.Unix(0, r.last); r.requests > 0 && last.Sub(written) >= farAhead {
		add("future", false, "the last request is dated %s, long after the log was written, %s: leave out what is wrong, such as with --to %s",
			r.options.when(r.last).Format(time.DateOnly), r.options.when(written.UnixNano()).Format(time.DateOnly), r.options.when(written.UnixNano()).AddDate(0, 0, 1).Format(time.DateOnly))
	}
}

// farAhead is a distance that no mistaken zone explains.
const farAhead = 48 * time.Hour

// little reports that a log is too small to choose from.
func (r *reading) little(add finder) {
	var short []string
	if r.requests < leastRequests {
		short = append(short, fmt.Sprintf("%s (%s at the least)", wording.Count(r.requests, "request"), wording.Grouped(leastRequests)))
	}
	if n := r.counted(); n < leastClients {
		short = append(short, fmt.Sprintf("%s (%d)", wording.Count(n, "client"), leastClients))
	}
	if span := time.Duration(r.last - r.first); span < leastSpan {
		short = append(short, fmt.Sprintf("%s of time (%s)", Duration(span), Duration(leastSpan)))
	}
	if len(short) > 0 {
		add("too_little", true, "not enough to choose: %s", strings.Join(short, ", "))
	}
}

// stops reports whether a finding forbids a proposal.
func stops(all []Finding) bool {
	return slices.ContainsFunc(all, func(f Finding) bool { return f.Stops })
}
