// Package ruletest runs tests of rules files over time: these requests at these
// times, and what must become of them.
//
//	file, err := ruletest.Read("stint_test.yaml")
//	…
//	for _, result := range file.Run(ctx) {
//		fmt.Println(result.Name, result.Failures)
//	}
//
// The rules decide as they do in production, by package policy and a store in
// memory, on a virtual clock. Each test begins with an empty store. Nothing
// outside of the process is asked: a store that the rules file names is not
// connected to. docs/TEST.md describes the files.
package ruletest
