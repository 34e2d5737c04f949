package lab

import "github.com/stint-dev/stint/meter"

// A Kind explains an algorithm, in short, as docs/LIMITS.md does at length. [Kinds] has all these
// texts.
type Kind struct {
	Name  string `json:"name"` // as limits as text use it
	Title string `json:"title"`
	// Few, Most and Memory are the row of the table in docs/LIMITS.md: what the algorithm is in a
	// few words, the most that passes in one period, and the memory for a key.
	Few    string `json:"few"`
	Most   string `json:"most"`
	Memory string `json:"memory"`
	// How says how the algorithm works, Choose when to take it, and Wrong what may disappoint.
	How    string `json:"how"`
	Choose string `json:"choose"`
	Wrong  string `json:"wrong"`
	// Level names the value that the curve shows.
	Level string `json:"level"`
	// Options are the options of a limit of this kind, beside count and period: burst, parts,
	// relaxed, count_denied.
	Options []string `json:"options"`

	// Queues says that a request that passes may have to wait before it starts.
	Queues bool `json:"queues"`

	why func(*moment) // explains the state for a [Why]
}

var kinds = []Kind{
	meter.GCRA: {
		why:  (*moment).bucket,
		Name: meter.GCRA.String(), Title: "Bucket",
		Few: "a bucket that fills all the time", Most: "burst + count", Memory: "1 word; 2 if the period in nanoseconds does not divide evenly by the count",
		How:     "A bucket holds burst tokens and gets a new one every period ÷ count. A request takes its cost in tokens or is denied. token_bucket and leaky_bucket are the same arithmetic.",
		Choose:  "Unless you have a reason not to. It smooths, and allows bursts of a size that you set.",
		Wrong:   "“10 a second” does not mean at most 10 in any second: a full bucket and a second of refilling are up to 20. Set a burst of 1, or take a log.",
		Level:   "tokens taken",
		Options: []string{"burst"},
	},
	meter.TokenBucketInterval: {
		why:  (*moment).interval,
		Name: meter.TokenBucketInterval.String(), Title: "Bucket, filled in lumps",
		Few: "a bucket filled once a period", Most: "burst + count", Memory: "2 words",
		How:     "The same bucket, but count tokens come at once, at each whole multiple of the period: on the full second, minute, hour.",
		Choose:  "When a quota is handed out by the clock and what is left may be saved up to a burst.",
		Wrong:   "Clients wait for the full minute and all come then. A burst and the next lump may meet at one edge.",
		Level:   "tokens taken",
		Options: []string{"burst"},
	},
	meter.LeakyQueue: {
		why:  (*moment).queue,
		Name: meter.LeakyQueue.String(), Title: "Queue", Queues: true,
		Few: "starts at an even pace, the rest waits", Most: "count + 1 started", Memory: "1 or 2 words",
		How:     "Requests start one after another at an even pace. A request that comes while others wait gets a place in line and its delay; when burst of them wait, the next is denied.",
		Choose:  "In front of something that breaks under bursts and whose callers rather wait than come again.",
		Wrong:   "When the queue is long, callers time out and the work is done for nobody. Keep burst × period ÷ count, the longest wait, below their patience.",
		Level:   "places taken",
		Options: []string{"burst"},
	},
	meter.FixedWindow: {
		why:  (*moment).window,
		Name: meter.FixedWindow.String(), Title: "Fixed window",
		Few: "a count that starts over", Most: "2 × count", Memory: "2 words",
		How:     "One count for each period, aligned to the clock: it starts over on the full second, minute, hour; with a zone, at midnight or on the first of the month; from first, a period after a key's first request.",
		Choose:  "For quotas that people read: 5,000 a day, 1,000,000 a month. When it starts over is on every clock.",
		Wrong:   "At the edges: a full count just before and another just after. And everybody's window starts over together, unless it is from first.",
		Level:   "counted in the window",
		Options: []string{"count_denied"},
	},
	meter.SlidingLog: {
		why:  (*moment).log,
		Name: meter.SlidingLog.String(), Title: "Sliding log",
		Few: "remembers every admission", Most: "count", Memory: "a word for each request of cost 1 in the period, 2 for one of a larger cost",
		How:     "Every admitted request is remembered with its time, for one period. What is remembered and the new cost must not be above the count.",
		Choose:  "For few and precious things: 5 log-ins a minute, a contract that says “in any 24 hours”.",
		Wrong:   "Memory, with large counts and many keys. And a client that hammers passes again as soon as its old requests age out, unless count_denied counts its attempts too.",
		Level:   "remembered from the last period",
		Options: []string{"count_denied"},
	},
	meter.SlidingCounter: {
		why:  (*moment).counter,
		Name: meter.SlidingCounter.String(), Title: "Sliding counter",
		Few: "this window, and what overlaps of the last", Most: "below 2 × count", Memory: "3 words",
		How:     "Two counts: this window's and that of the one before, which weighs as much as still overlaps the last period, as if its requests had come evenly.",
		Choose:  "For high counts and many keys, when a few percent of error do not matter.",
		Wrong:   "When requests did not come evenly: late in the window before, too much passes; early, too little.",
		Level:   "weighed count",
		Options: []string{"relaxed", "count_denied"},
	},
	meter.SlidingSubWindows: {
		why:  (*moment).parts,
		Name: meter.SlidingSubWindows.String(), Title: "Sliding window in parts",
		Few: "a log cut into parts", Most: "count", Memory: "parts + 3 words; half of that for counts below 2^31",
		How:     "The period is cut into parts, and each has a count. What is in the parts that still overlap the last period counts in full.",
		Choose:  "Where a log would be too large and too much must never pass.",
		Wrong:   "It errs on the strict side: a request may count up to one part too long. More parts, less error, more memory.",
		Level:   "counted in parts that still count",
		Options: []string{"parts", "count_denied"},
	},
}

// Kinds returns the algorithms, in the order of docs/LIMITS.md.
func Kinds() []Kind { return kinds }
