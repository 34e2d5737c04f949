// Package rules reads rules files, YAML or JSON, and keeps a policy up to date while its file
// changes.
//
// Most callers open a source and ask it for the present policy:
//
//	file, err := rules.Read("stint.yaml")
//	…
//	source, err := rules.Open(store, "stint.yaml", file, rules.Options{})
//	…
//	go source.Watch(ctx)
//	guard, err := httplimit.NewPolicyFunc(source.Policy, client, httplimit.Options{})
//
// # Guarantees
//
// A reload is all or nothing: a file that cannot be read, or is wrong, changes nothing, and the
// last good rules stay in force. What keys have used is kept. Errors name the file, the line, the
// column and what would be right. No file can stop the process or make it hang: a file that is too
// large, not regular, or nested too deeply is refused.
//
// # YAML
//
// Files are YAML 1.2 with its core schema: true and false are booleans, and yes, no, on and off are
// text; 1_000 may be written for 1000. Anchors, aliases and merge keys are read. Tags other than
// those of the core schema are refused.
//
// # Concurrency
//
// A Source may be used from many goroutines at once. Policy costs an atomic load.
package rules
