package main_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesdb/dbtest"
)

// TestUndoGiftInDatabase: what a reset gave is in a server's store: without a server it
// is not taken back, and stays as it is.
func TestUndoGiftInDatabase(t *testing.T) {
	dir := t.TempDir()
	file, url := writeFile(t, dir+"/stint.yaml", operateRules), "sqlite:"+dir+"/stint.db"
	session{args: []string{"rules", "push", file, "--rules", url}}.run()
	db := dbtest.Open(t, url, rulesdb.Options{})
	if err := db.Note(t.Context(), rulesdb.Act{Author: "anna", Act: "reset", Subject: `orders "k"`, Was: "[]"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := (session{args: []string{"audit", "undo", "2", "--rules", url}}).run(); !strings.Contains(got, "act 2, reset: ") || !strings.Contains(got, "--server") || !strings.Contains(got, "exit 2") {
			t.Error(got)
		}
	}
}

// TestUndoTwice takes one act back several times at once, at one server and at two
// that share a database: one undo is done, the others are told so, and what a reset
// gave is charged once.
func TestUndoTwice(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, dir+"/stint.yaml", operateRules)
	database := "sqlite:" + dir + "/stint.db"
	session{args: []string{"rules", "push", file, "--rules", database}}.run()
	token := session{args: []string{"token", "make", "pager", "--role", "operator", "--rules", database}}.run()
	start := func(args ...string) *running {
		p := operated(t, args...)
		return p
	}
	t.Run("file", func(t *testing.T) { undoTwice(t, "", start("-c", file)) })
	t.Run("database", func(t *testing.T) {
		undoTwice(t, token, start("--rules", database, "--node", "n1"), start("--rules", database, "--node", "n2"))
	})
}

// undoTwice acts at the first of several servers, and takes that back at all.
func undoTwice(t *testing.T, token string, servers ...*running) {
	p := servers[0]
	headers := map[string]string{"Authorization": "Bearer " + token[:max(len(token)-1, 0)]}
	if token == "" {
		headers = nil
	}
	act := func(method, path, body string) {
		t.Helper()
		if status, answer := p.call(method, p.admin+path, body, headers); status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, status, answer)
		}
	}
	acts := 0
	undo := func(t *testing.T) {
		t.Helper()
		acts++
		var all sync.WaitGroup
		var done, refused atomic.Int64
		for i := range 8 {
			s := servers[i%len(servers)]
			all.Go(func() {
				switch status, answer := s.call(http.MethodPost, s.admin+"/v1/undo", fmt.Sprintf(`{"act":%d}`, acts), headers); status {
				case http.StatusOK:
					done.Add(1)
				case http.StatusUnprocessableEntity:
					refused.Add(1)
				default:
					t.Errorf("status %d: %s", status, answer)
				}
			})
		}
		all.Wait()
		if done.Load() != 1 || refused.Load() != 7 {
			t.Errorf("act %d: %d undos are done, %d refused, want 1 and 7", acts, done.Load(), refused.Load())
		}
		acts++ // the undo
	}
	if token != "" {
		acts = 2 // the push and the token
	}
	for i := range 5 {
		client := fmt.Sprintf("partner-%d", i)
		p.requests(client, 1)
		act("POST", "/v1/reset?rule=orders&key="+client, `{}`)
		undo(t)
		passed := 0
		for _, s := range servers { // each has a memory of its own
			passed += s.requests(client, 5)
		}
		if want := 4*len(servers) - 1; passed != want {
			t.Errorf("%s: %d requests pass after the undos of a reset, want %d", client, passed, want)
		}
		act("PUT", "/v1/override?rule=orders&key="+client, `{"limits":["100/h"]}`)
		undo(t)
		act("PUT", "/v1/block?rule=orders&key="+client, `{}`)
		undo(t)
	}
}
