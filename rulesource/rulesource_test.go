package rulesource_test

import (
	"testing"

	"github.com/stint-dev/stint/rulesource"
)

func TestFollows(t *testing.T) {
	at := func(id string, epoch, revision, change int64) rulesource.Version {
		return rulesource.Version{Identity: id, Epoch: epoch, Revision: revision, Change: change}
	}
	tests := []struct {
		name    string
		held, v rulesource.Version
		want    bool
	}{
		{"the first", rulesource.Version{}, at("a", 0, 1, 0), true},
		{"the same", at("a", 0, 3, 7), at("a", 0, 3, 7), true},
		{"newer rules", at("a", 0, 3, 7), at("a", 0, 4, 7), true},
		{"a newer override", at("a", 0, 3, 7), at("a", 0, 3, 8), true},
		{"older rules: a restore", at("a", 0, 3, 7), at("a", 0, 2, 7), false},
		{"an older override: a restore", at("a", 0, 3, 7), at("a", 0, 4, 6), false},
		{"the restore is accepted", at("a", 0, 3, 7), at("a", 1, 2, 5), true},
		{"a restore to before it was accepted", at("a", 1, 3, 7), at("a", 0, 9, 9), false},
		{"another database", at("a", 0, 3, 7), at("b", 0, 9, 9), false},
		{"another database is accepted", at("a", 0, 3, 7), at("b", 1, 1, 0), true},
	}
	for _, test := range tests {
		if got := test.v.Follows(test.held); got != test.want {
			t.Errorf("%s: %v after %v: %v", test.name, test.v, test.held, got)
		}
	}
}
