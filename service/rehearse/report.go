package rehearse

import "time"

// A Report says what the rules would have done. Keys are those of rules: one
// that two rules deny counts twice.
type Report struct {
	// Requests is how many are counted, from From to To.
	Requests int64     `json:"requests"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	// State says what the stores began with: nothing, or what keys had used at a
	// checkpoint. WarmUp is how long requests at first are not counted:
	// WarmUpRequests of them.
	State          string `json:"state"`
	WarmUp         string `json:"warm_up"`
	WarmUpRequests int64  `json:"warm_up_requests"`

	// RecordedDenied is how many of the counted requests were denied when they
	// came. Where the rules in force are as they were, and had been for long,
	// Denied.Before is near it.
	RecordedDenied int64   `json:"recorded_denied"`
	Denied         Compare `json:"denied"`
	KeysDenied     Compare `json:"keys_denied"`
	// NewlyDenied is how many requests only the other rules deny, and
	// NewlyPassed how many only those in force do. NewlyDeniedShare is that of
	// all requests that a rule matches, Matched, from 0 to 1. Unread requests,
	// which could not be read, count among both.
	Matched          int64   `json:"matched"`
	Unread           int64   `json:"unread"`
	NewlyDenied      int64   `json:"newly_denied"`
	NewlyPassed      int64   `json:"newly_passed"`
	NewlyDeniedShare float64 `json:"newly_denied_share"`
	// KeysNewlyDenied is how many keys are denied that were not at all, and
	// KeysNewlyPassed how many no longer are.
	KeysNewlyDenied int64 `json:"keys_newly_denied"`
	KeysNewlyPassed int64 `json:"keys_newly_passed"`

	// Rules has every rule of either, those in force first.
	Rules []*Rule `json:"rules"`
	// OverTime has the counts column by column.
	OverTime Timeline `json:"over_time"`
	// Denials are the keys with the most requests that are newly denied, Passes
	// those with the most that newly pass.
	Denials []Key `json:"newly_denied_keys"`
	Passes  []Key `json:"newly_passed_keys"`
	// Missing are attributes that the other rules look at and that were not
	// recorded: they are taken as missing from all requests, or some.
	Missing []string `json:"missing"`
	// Unsure says why the counts are no answer: what of the recording was lost, and
	// which rules that change are not rehearsed. As a gate, a rehearsal fails then.
	Unsure []string `json:"unsure"`
	// Notes say what the counts cannot know.
	Notes []string `json:"notes"`
}

// Compare is a count under the rules in force and under the others.
type Compare struct {
	Before int64 `json:"before"`
	After  int64 `json:"after"`
}

// A Rule is what one rule did. Of a request that several rules deny, the one
// that denies for longest counts.
type Rule struct {
	Rule        string  `json:"rule"`
	Denied      Compare `json:"denied"`
	NewlyDenied int64   `json:"newly_denied"`
	NewlyPassed int64   `json:"newly_passed"`
	// ShadowDenied is how many the rule would have denied, in shadow.
	ShadowDenied Compare `json:"shadow_denied"`
}

// A Timeline is counts of columns of equal length.
type Timeline struct {
	Column      string    `json:"column"`
	From        time.Time `json:"from"`
	Requests    []int64   `json:"requests"`
	Before      []int64   `json:"before"`
	After       []int64   `json:"after"`
	NewlyDenied []int64   `json:"newly_denied"`
	NewlyPassed []int64   `json:"newly_passed"`
}

// A Key is what became of one key of a rule. Key is as the store has it, for
// those who may see it; KeyHash is what logs show.
type Key struct {
	Rule        string    `json:"rule"`
	Key         string    `json:"key,omitempty"`
	KeyHash     string    `json:"key_hash,omitempty"`
	Denied      Compare   `json:"denied"`
	NewlyDenied int64     `json:"newly_denied"`
	NewlyPassed int64     `json:"newly_passed"`
	First       time.Time `json:"first"` // that is newly denied or passed
}
