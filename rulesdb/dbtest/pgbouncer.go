package dbtest

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stint-dev/stint/internal/testkit/need"
)

// PgBouncer starts a PgBouncer in transaction mode in front of the server of a URL, and returns its
// URL. It skips the test where PgBouncer is not installed.
func PgBouncer(t testing.TB, behind string) string {
	t.Helper()
	pgbouncer := need.Program(t, "pgbouncer")
	u, err := url.Parse(behind)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{dir: directory(t), Port: port(t), name: pgbouncer, as: nobody(t), ping: "pgx"}
	config := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%s user=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nauth_type = any\npool_mode = transaction\nunix_socket_dir =\n",
		u.Port(), u.User.Username(), s.Port)
	file := filepath.Join(s.dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	own(t, s.dir, s.as)
	s.args = []string{file}
	s.URL = strings.Replace(behind, ":"+u.Port()+"/", ":"+strconv.Itoa(s.Port)+"/", 1)
	s.dsn = s.URL + "&default_query_exec_mode=exec"
	s.Start(t)
	return s.URL
}
