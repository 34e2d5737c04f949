package recent_test

import (
	"errors"
	"testing"

	"github.com/stint-dev/stint/service/observe/recent"
)

func TestLeastRecentlyUsedGoes(t *testing.T) {
	made, forgot := "", 0
	v := recent.Values[string, int]{Max: 2, Forgot: func() { forgot++ }}
	for _, key := range []string{"a", "b", "a", "c", "a", "b", "b"} {
		if _, err := v.Get(key, func() (int, error) { made += key; return 0, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if made != "abcb" || forgot != 2 {
		t.Errorf("made %s and forgot %d, want abcb and 2", made, forgot)
	}
	bad := errors.New("bad")
	if _, err := v.Get("d", func() (int, error) { return 0, bad }); err != bad || forgot != 2 {
		t.Errorf("%v, forgot %d", err, forgot)
	}
}

// A value that takes its time to be made does not hold up one that is known. If it does, this test
// never ends.
func TestKnownDoesNotWait(t *testing.T) {
	v := recent.Values[string, int]{Max: 2}
	known := func() (int, error) { return 1, nil }
	if _, err := v.Get("known", known); err != nil {
		t.Fatal(err)
	}
	got, err := v.Get("slow", func() (int, error) { return v.Get("known", known) })
	if got != 1 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
}
