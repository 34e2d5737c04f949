package main_test

import (
	"bufio"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stint-dev/stint/rulesdb/dbtest"
)

// TestSlowPublish publishes while another writer holds the database for longer than
// other answers of the admin address may take: the author is told that it is done. A
// client that does not send its body is not waited for that long.
func TestSlowPublish(t *testing.T) {
	url, dir := dbtest.Postgres(t).URL, t.TempDir()
	session{args: []string{"rules", "migrate", "--rules", url}}.run()
	session{args: []string{"rules", "push", writeFile(t, dir+"/stint.yaml", operateRules), "--rules", url}}.run()
	session{args: []string{"rules", "push", writeFile(t, dir+"/other.yaml", "rules: []\n"), "--rules", url}}.run()
	token := strings.TrimSpace(session{args: []string{"token", "make", "anna", "--role", "admin", "--rules", url}}.run())
	p := operated(t, "--rules", url, "--rules-copy", "none")

	slow, err := net.Dial("tcp", strings.TrimPrefix(p.admin, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	fmt.Fprintf(slow, "POST /v1/rules HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nIf-Match: *\r\nContent-Length: 100\r\n\r\n{", token)

	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	other, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec("UPDATE stint_state SET epoch = epoch"); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(12*time.Second, func() { _ = other.Rollback() }) // the publication waits for it
	// One that brings no document: who brings one has more time, to send it.
	status, out, errs := p.stint("rules", "rollback", "1", "--token-file", writeFile(t, dir+"/token", token))
	if status != 0 || !strings.Contains(out, "revision 3 is in force") {
		t.Errorf("exit %d %s%s", status, out, errs)
	}

	_ = slow.SetReadDeadline(time.Now().Add(40 * time.Second))
	if resp, err := http.ReadResponse(bufio.NewReader(slow), nil); err != nil || resp.StatusCode/100 != 4 {
		t.Errorf("a client that does not send its body: %v, %v", resp, err)
	}
}
