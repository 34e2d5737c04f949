package accesslog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stint-dev/stint/planner/accesslog"
)

// moment reads one time as the field of a JSON line.
func moment(t *testing.T, text string, o accesslog.Options) (time.Time, error) {
	t.Helper()
	format, err := accesslog.Detect([]byte(`{"time":0}`), o)
	if err != nil {
		t.Fatal(err)
	}
	var r accesslog.Record
	err = format.Parser().Parse(fmt.Appendf(nil, `{"time":%q}`, text), &r)
	return time.Unix(0, r.At).UTC(), err
}

func TestTimes(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		zone       *time.Location
		text, want string
	}{
		{nil, "2024-03-05T12:00:00Z", "2024-03-05T12:00:00Z"},
		{nil, "2024-03-05t12:00:00z", "2024-03-05T12:00:00Z"},
		{nil, "2024-03-05 12:00:00,123456789", "2024-03-05T12:00:00.123456789Z"},
		{nil, "2024-03-05T12:00:00.1234567891-07:30", "2024-03-05T19:30:00.123456789Z"},
		{nil, "2024-03-05 12:00:00 +0100", "2024-03-05T11:00:00Z"},
		{nil, "05/Mar/2024:12:00:00 +0100", "2024-03-05T11:00:00Z"},
		{nil, "[05/Mar/2024:12:00:00 +0100]", "2024-03-05T11:00:00Z"},
		{nil, "1709640000", "2024-03-05T12:00:00Z"},
		{nil, "1709640000.5", "2024-03-05T12:00:00.5Z"},
		{nil, "1709640000123", "2024-03-05T12:00:00.123Z"},
		{nil, "1709640000123.5", "2024-03-05T12:00:00.1235Z"},
		{nil, "1709640000123456", "2024-03-05T12:00:00.123456Z"},
		{nil, "1709640000123456789", "2024-03-05T12:00:00.123456789Z"},
		{nil, "0", "1970-01-01T00:00:00Z"},
		// In winter and in summer; twice there in autumn: the first; not there
		// in spring: moved on.
		{berlin, "2024-03-05 12:00:00", "2024-03-05T11:00:00Z"},
		{berlin, "2024-07-05 12:00:00", "2024-07-05T10:00:00Z"},
		{berlin, "2024-10-27 02:30:00", "2024-10-27T00:30:00Z"},
		{berlin, "2024-03-31 02:30:00", "2024-03-31T01:30:00Z"},
		{berlin, "2024-03-05 12:00:00Z", "2024-03-05T12:00:00Z"},
	} {
		got, err := moment(t, test.text, accesslog.Options{Zone: test.zone})
		if err != nil || got.Format(time.RFC3339Nano) != test.want {
			t.Errorf("%q in %v is %s (%v), want %s", test.text, test.zone, got.Format(time.RFC3339Nano), err, test.want)
		}
	}
	for _, text := range []string{
		"", "x", "-1", "1.", ".5", "1e9", "99999999999999999999", "2024-13-05T12:00:00Z", "2024-02-30T12:00:00Z",
		"2024-03-05T25:00:00Z", "2024-03-05T12:00:00.Z", "2024-03-05T12:00:00.xZ", "2024-03-05T12:00:00Zx", "2024-03-05T12:00:00+1",
		"1969-12-31T23:59:59Z", "2201-01-01T00:00:00Z", "05/Mar/2024:12:00:00  0100", "2024-03-05", "99999999999.5.5",
	} {
		if got, err := moment(t, text, accesslog.Options{}); err == nil {
			t.Errorf("%q is taken as %s", text, got)
		}
	}
}

// A syslog time has no year: it is the latest that is not after the log.
func TestSyslogYear(t *testing.T) {
	for _, test := range []struct{ latest, stamp, want string }{
		{"2025-01-02T00:00:00Z", "Jan  1 00:00:01", "2025-01-01T00:00:01Z"},
		{"2025-01-02T00:00:00Z", "Dec 31 23:59:59", "2024-12-31T23:59:59Z"},
		{"2025-01-02T00:00:00Z", "Jan  2 12:00:00", "2025-01-02T12:00:00Z"}, // a clock that is ahead
		{"2025-01-02T00:00:00Z", "Jan  4 00:00:00", "2024-01-04T00:00:00Z"},
		{"2024-12-31T23:00:00Z", "Jan  1 00:30:00", "2025-01-01T00:30:00Z"},
		{"2025-06-01T00:00:00Z", "Feb 29 01:02:03", "2024-02-29T01:02:03Z"},
		{"2027-06-01T00:00:00Z", "Feb 29 01:02:03", "2024-02-29T01:02:03Z"},
	} {
		latest, err := time.Parse(time.RFC3339, test.latest)
		if err != nil {
			t.Fatal(err)
		}
		_, got := read(t, test.stamp, test.stamp+` web1 app: {"ip":"192.0.2.1"}`, accesslog.Options{Latest: latest})
		if len(got) != 1 || got[0] != test.want+" " {
			t.Errorf("%s in a log of %s: %q, want %s", test.stamp, test.latest, got, test.want)
		}
	}
}
