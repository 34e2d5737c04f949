package accesslog_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/stint-dev/stint/internal/testkit/disk"
	"github.com/stint-dev/stint/planner/accesslog"
)

var all = []string{"ip", "method", "path", "host", "user", "status", "bytes", "header.referer", "header.user-agent"}

// The formats, each with a line and what it says: the time, and the values of
// all, between bars.
var formats = []struct {
	name   string
	log    string
	format string
	at     string
	want   string
}{
	{
		"combined", `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET /a/b?c=d HTTP/1.1" 200 203023 "http://example.com/" "Mozilla/5.0 (X11)"`,
		"combined", "2015-05-17T10:05:03Z", "192.0.2.1|GET|/a/b|||200|203023|http://example.com/|Mozilla/5.0 (X11)",
	}, {
		"combined with more", `2001:db8::1 - ann lee [01/Jan/2024:00:00:00 -0130] "POST / HTTP/2.0" 201 - "-" "a \"b\" c" "10.0.0.1" rt=0.1`,
		"combined with X-Forwarded-For", "2024-01-01T01:30:00Z", `2001:db8::1|POST|/||ann lee|201||` + `|a \"b\" c`,
	}, {
		"a user with brackets", `192.0.2.1 - a[b] [c [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/8.5"`,
		"combined", "2015-05-17T10:05:03Z", "192.0.2.1|GET|/||a[b] [c|200|5||curl/8.5",
	}, {
		"a user with a time", `10.0.0.9, 192.0.2.1 - [17/May/2014:10:05:03 +0000] [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5`,
		"common", "2015-05-17T10:05:03Z", "192.0.2.1|GET|/||[17/May/2014:10:05:03 +0000]|200|5||",
	}, {
		"a user with brackets behind a host", `www.example.com:443 192.0.2.1 - a [b [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/8.5"`,
		"vhost_combined", "2015-05-17T10:05:03Z", "192.0.2.1|GET|/|www.example.com:443|a [b|200|5||curl/8.5",
	}, {
		"a user with brackets and fractions of a second", `192.0.2.1 - [b [17/May/2015:10:05:03.123 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/8.5"`,
		"common with fractions of a second", "2015-05-17T10:05:03.123Z", "192.0.2.1|GET|/||[b|200|5||curl/8.5",
	}, {
		"a request that is none", `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "\x16\x03\x01" 400 150 "-" "-"`,
		"combined", "2015-05-17T10:05:03Z", "192.0.2.1|||||400|150||",
	}, {
		"common", `host.example.com - bob [29/Feb/2024:23:59:60 +0200] "HEAD http://example.com/x HTTP/1.0" 304 0`,
		"common", "2024-02-29T22:00:00Z", "host.example.com|HEAD|/x||bob|304|0||",
	}, {
		"nginx", `{"time_iso8601":"2024-03-05T12:00:00+01:00","remote_addr":"192.0.2.7","remote_user":"","request":"GET /q?x=1 HTTP/1.1","status":"404","body_bytes_sent":"12","http_user_agent":"curl \"8\" \u00e9","http_host":"example.com"}`,
		"nginx JSON", "2024-03-05T11:00:00Z", `192.0.2.7|GET|/q|example.com||404|12||curl "8" é`,
	}, {
		"nginx with milliseconds", `{ "msec" : 1709640000.125, "remote_addr" : "192.0.2.7", "request_method": "PUT", "request_uri": "/z" , "status":200}`,
		"nginx JSON", "2024-03-05T12:00:00.125Z", `192.0.2.7|PUT|/z|||200|||`,
	}, {
		"caddy", `{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"127.0.0.1","remote_port":"41342","client_ip":"192.0.2.9","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/p?q","headers":{"User-Agent":["curl/7.82.0","x"],"Accept":["*/*"]},"tls":{"resumed":false}},"user_id":"","duration":0.000929675,"size":10900,"status":200}`,
		"Caddy JSON", "2022-03-09T21:30:01.5241024Z", "192.0.2.9|GET|/p|localhost||200|10900||curl/7.82.0",
	}, {
		"envoy", `{"start_time":"2024-03-05T12:00:00.001Z","method":"GET","path":"/rewritten","x-envoy-original-path":"/as/asked?x","protocol":"HTTP/1.1","response_code":503,"bytes_received":0,"bytes_sent":91,"downstream_remote_address":"[2001:db8::5]:443","user_agent":"go","authority":"svc"}`,
		"Envoy JSON", "2024-03-05T12:00:00.001Z", "2001:db8::5|GET|/as/asked|svc||503|91||go",
	}, {
		"AWS", `https 2018-07-02T22:23:00.186641Z app/my-lb/50dc6c495c0c9188 192.0.2.11:2817 10.0.0.1:80 0.086 0.048 0.037 200 201 0 57 "GET https://www.example.com:443/a?b HTTP/1.1" "curl/7.46.0" ECDHE TLSv1.2 arn:aws "Root=1-58" "www.example.com"`,
		"AWS load balancer", "2018-07-02T22:23:00.186641Z", "192.0.2.11|GET|/a|www.example.com||200|57||curl/7.46.0",
	}, {
		"CSV", "Timestamp,Client_IP,Method,\"URL\",status\r\n2024-03-05 12:00:00,192.0.2.13,GET,\"/a,\"\"b\"\"?x\",200\r\n",
		"CSV", "2024-03-05T12:00:00Z", `192.0.2.13|GET|/a,"b"|||200|||`,
	}, {
		"TSV", "#ts\tip\tpath\n1709640000\t192.0.2.15\t/\"x\n",
		"TSV", "2024-03-05T12:00:00Z", `192.0.2.15||/"x||||||`,
	}, {
		"syslog", `<190>May  7 10:05:03 web1 nginx: 192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5`,
		"common behind syslog", "2015-05-17T10:05:03Z", "192.0.2.1|GET|/|||200|5||",
	}, {
		"syslog, JSON without a time", `Feb 29 10:05:03 web1 app[12]: {"ip":"192.0.2.1","path":"/"}`,
		"JSON behind syslog", "2024-02-29T10:05:03Z", "192.0.2.1||/||||||",
	}, {
		"syslog with dates", `2024-03-05T12:00:00.5+00:00 web1 app: {"ip":"192.0.2.1"}`,
		"JSON behind syslog", "2024-03-05T12:00:00.5Z", "192.0.2.1||||||||",
	}, {
		"structured syslog", `<13>1 2024-03-05T12:00:00Z web1 app 12 - [a b="c"] {"ip":"192.0.2.1"}`,
		"JSON behind syslog", "2024-03-05T12:00:00Z", "192.0.2.1||||||||",
	}, {
		"Traefik", `{"ClientAddr":"192.0.2.1:5","ClientHost":"192.0.2.1","DownstreamStatus":404,"RequestHost":"example.com","RequestMethod":"GET","RequestPath":"/a?b","StartUTC":"2024-03-05T12:00:00Z","request_User-Agent":"curl"}`,
		"JSON", "2024-03-05T12:00:00Z", "192.0.2.1|GET|/a|example.com||404|||curl",
	}, {
		"Google Cloud load balancer", `{"httpRequest":{"remoteIp":"192.0.2.1","requestMethod":"GET","requestUrl":"https://example.com/a?b","status":200,"userAgent":"curl"},"timestamp":"2024-03-05T12:00:00Z"}`,
		"JSON", "2024-03-05T12:00:00Z", "192.0.2.1|GET|/a|||200|||curl",
	}, {
		"AWS WAF", `{"timestamp":1709640000000,"formatVersion":1,"action":"ALLOW","httpRequest":{"clientIp":"192.0.2.1","country":"US","uri":"/a","httpMethod":"GET"}}`,
		"JSON", "2024-03-05T12:00:00Z", "192.0.2.1|GET|/a||||||",
	}, {
		"Azure", `{"time":"2024-03-05T12:00:00Z","properties":{"clientIp":"192.0.2.1","httpMethod":"GET","requestUri":"https://example.com:443/a","httpStatusCode":"200","userAgent":"curl"}}`,
		"JSON", "2024-03-05T12:00:00Z", "192.0.2.1|GET|/a|||200|||curl",
	}, {
		"ECS", `{"@timestamp":"2024-03-05T12:00:00Z","client.ip":"192.0.2.1","http":{"request":{"method":"GET"},"response":{"status_code":200}},"url":{"path":"/a"},"user_agent.original":"curl"}`,
		"JSON", "2024-03-05T12:00:00Z", "192.0.2.1|GET|/a|||200|||curl",
	}, {
		"pino", `{"level":30,"time":1709640000000,"req":{"id":1,"method":"GET","url":"/a?b","headers":{"host":"example.com","user-agent":"curl"},"remoteAddress":"::1"},"res":{"statusCode":200}}`,
		"JSON", "2024-03-05T12:00:00Z", "::1|GET|/a|example.com||200|||curl",
	}, {
		"Cloudflare", `{"ClientIP":"192.0.2.1","ClientRequestMethod":"GET","ClientRequestURI":"/a","EdgeResponseStatus":200,"EdgeStartTimestamp":"2024-03-05T12:00:00Z","ClientRequestHost":"example.com"}`,
		"JSON", "2024-03-05T12:00:00Z", "192.0.2.1|GET|/a|example.com||200|||",
	}, {
		"API Gateway", `{"ip":"192.0.2.1","requestTime":"05/Mar/2024:12:00:00 +0000","httpMethod":"GET","resourcePath":"/a","status":"200"}`,
		"JSON", "2024-03-05T12:00:00Z", "192.0.2.1|GET|/a|||200|||",
	}, {
		"Kong", `{"client_ip":"192.0.2.1","started_at":1709640000000,"request":{"method":"GET","uri":"/a"},"response":{"status":200}}`,
		"JSON", "2024-03-05T12:00:00Z", "192.0.2.1|GET|/a|||200|||",
	}, {
		"logfmt", `level=info time=2024-03-05T12:00:00Z remote_addr=192.0.2.1:80 method=GET path="/a b" status=200 user_agent="curl \"8\""`,
		"logfmt", "2024-03-05T12:00:00Z", `192.0.2.1|GET|/a b|||200|||curl "8"`,
	}, {
		"IIS", "#Software: Microsoft Internet Information Services 10.0\r\n#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) sc-status\r\n2024-03-05 12:00:00 10.0.0.1 GET /a b=c 443 - 192.0.2.1 Mozilla/5.0+(X11) - 200\r\n",
		"W3C", "2024-03-05T12:00:00Z", "192.0.2.1|GET|/a|||200|||Mozilla/5.0+(X11)",
	}, {
		"CloudFront", "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent)\n2019-12-04\t21:02:31\tLAX1\t392\t192.0.2.1\tGET\td111.cloudfront.net\t/a\t200\t-\tMozilla/5.0%20(X11)\n",
		"W3C", "2019-12-04T21:02:31Z", "192.0.2.1|GET|/a|d111.cloudfront.net||200|392||Mozilla/5.0%20(X11)",
	}, {
		"HAProxy behind syslog", `Feb  6 12:14:14 localhost haproxy[14389]: 192.0.2.1:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"`,
		"HAProxy behind syslog", "2009-02-06T12:14:14.655Z", "192.0.2.1|GET|/index.html|||200|2750||",
	}, {
		"containerd", `2023-11-14T22:13:20.1Z stdout F 192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5`,
		"common behind CRI", "2015-05-17T10:05:03Z", "192.0.2.1|GET|/|||200|5||",
	}, {
		"docker compose", "\x1b[36mweb-1  |\x1b[0m " + `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5`,
		"common behind docker compose", "2015-05-17T10:05:03Z", "192.0.2.1|GET|/|||200|5||",
	}, {
		"kubectl, both prefixes", `[pod/web-5d4/nginx] 2023-11-14T22:13:20.1Z 192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5`,
		"common behind timestamps behind kubectl --prefix", "2015-05-17T10:05:03Z", "192.0.2.1|GET|/|||200|5||",
	}, {
		"containerd, JSON without a time", `2023-11-14T22:13:20.5Z stdout F {"ip":"192.0.2.1","path":"/"}`,
		"JSON behind CRI", "2023-11-14T22:13:20.5Z", "192.0.2.1||/||||||",
	}, {
		"docker json-file", `{"log":"192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5\n","stream":"stdout","time":"2023-11-14T22:13:20.1Z"}`,
		"common in docker json-file", "2015-05-17T10:05:03Z", "192.0.2.1|GET|/|||200|5||",
	}, {
		"vhost_combined", `www.example.com:443 192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5 "-" "curl"`,
		"vhost_combined", "2015-05-17T10:05:03Z", "192.0.2.1|GET|/|www.example.com:443||200|5||curl",
	}, {
		"addresses first", `192.0.2.1, 10.0.0.5 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5 "-" "curl"`,
		"combined behind a list of addresses", "2015-05-17T10:05:03Z", "10.0.0.5|GET|/|||200|5||curl",
	}, {
		"addresses first, in quotes", `"192.0.2.1, 10.0.0.5" - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5 "-" "curl"`,
		"combined behind a list of addresses", "2015-05-17T10:05:03Z", "10.0.0.5|GET|/|||200|5||curl",
	}, {
		"vhost_common", `www.example.com:80 203.0.113.7 - - [10/Feb/2012:16:42:07 -0500] "GET / HTTP/1.0" 301 368`,
		"vhost_common", "2012-02-10T21:42:07Z", "203.0.113.7|GET|/|www.example.com:80||301|368||",
	}, {
		"Gin", `[GIN] 2024/03/01 - 10:00:00 | 200 |     1.2345ms |     203.0.113.7 | GET      "/api/users?a=b"`,
		"Gin", "2024-03-01T10:00:00Z", "203.0.113.7|GET|/api/users|||200|||",
	}, {
		"Nginx Proxy Manager", `[24/Jan/2022:16:51:02 +0000] - 404 404 - GET http www.example.com "/sdfdsf" [Client 203.0.113.7] [Length 150] [Gzip -] [Sent-to 192.0.2.2] "Mozilla/5.0" "-"`,
		"Nginx Proxy Manager", "2022-01-24T16:51:02Z", "203.0.113.7|GET|/sdfdsf|www.example.com||404|150||Mozilla/5.0",
	}, {
		"HAProxy's own datagrams, which name no host", `<134>Nov 25 22:58:21 haproxy[7383]: 203.0.113.1:41071 [25/Nov/2026:22:58:21.995] f1 b/s 0/0/0/0/0 200 116 - - ---- 1/1/0/0/0 0/0 "GET /x1 HTTP/1.1"`,
		"HAProxy behind syslog", "2026-11-25T22:58:21.995Z", "203.0.113.1|GET|/x1|||200|116||",
	}, {
		"an array of Google Cloud", "[\n" + `{"httpRequest":{"remoteIp":"203.0.113.7","requestMethod":"GET","requestUrl":"https://example.com/a","status":200},"timestamp":"2024-03-01T10:00:00.123Z"},` + "\n]\n",
		"JSON", "2024-03-01T10:00:00.123Z", "203.0.113.7|GET|/a|||200|||",
	}, {
		"Caddy with the time of a wall", `{"level":"info","ts":"2024/03/01 10:00:01.123","logger":"http.log.access","msg":"handled request","request":{"remote_ip":"203.0.113.1","method":"GET","host":"www.example.com","uri":"/"},"status":200}`,
		"Caddy JSON", "2024-03-01T10:00:01.123Z", "203.0.113.1|GET|/|www.example.com||200|||",
	}, {
		"Zeek", `{"ts":1300475168.5,"uid":"C","id.orig_h":"203.0.113.7","id.resp_h":"198.51.100.3","method":"GET","host":"www.example.com","uri":"/a.css","status_code":304}`,
		"JSON", "2011-03-18T19:06:08.5Z", "203.0.113.7|GET|/a.css|www.example.com||304|||",
	}, {
		"Apache with milliseconds", `192.0.2.1 - - [17/May/2015:10:05:03.250 +0000] "GET / HTTP/1.1" 200 5 "-" "curl"`,
		"common with fractions of a second", "2015-05-17T10:05:03.25Z", "192.0.2.1|GET|/|||200|5||curl",
	}, {
		"HAProxy behind syslog in a container", `2026-11-25T22:58:22.123456789Z stdout F <134>Nov 25 22:58:21 haproxy[7383]: 203.0.113.1:41071 [25/Nov/2026:22:58:21.995] f1 b/s 0/0/0/0/0 200 116 - - ---- 1/1/0/0/0 0/0 "GET /x1 HTTP/1.1"`,
		"HAProxy behind syslog behind CRI", "2026-11-25T22:58:21.995Z", "203.0.113.1|GET|/x1|||200|116||",
	}, {
		"HAProxy and IPv6, whose address has no brackets", `2001:db8::1:4321 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 "GET / HTTP/1.1"`,
		"HAProxy", "2009-02-06T12:14:14.655Z", "2001:db8::1|GET|/|||200|2750||",
	}, {
		"combined behind structured syslog", `<190>1 2024-03-05T12:00:00Z web1 nginx 12 - - 192.0.2.1 - - [05/Mar/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "curl"`,
		"combined behind syslog", "2024-03-05T12:00:00Z", "192.0.2.1|GET|/|||200|5||curl",
	}, {
		"CloudFront's JSON", `{"date":"2019-12-04","time":"21:02:31","sc-bytes":"392","c-ip":"192.0.2.1","cs-method":"GET","cs-uri-stem":"/a","sc-status":"200"}`,
		"JSON", "2019-12-04T21:02:31Z", "192.0.2.1|GET|/a|||200|392||",
	}, {
		"the journal as JSON", `{"__REALTIME_TIMESTAMP":"1431857103250000","_HOSTNAME":"w","MESSAGE":"192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5"}`,
		"common in JSON", "2015-05-17T10:05:03Z", "192.0.2.1|GET|/|||200|5||",
	},
}

// The default formats of servers are recognised, and the client found.
func TestShapes(t *testing.T) {
	for _, s := range accesslog.Shapes() {
		format, records := read(t, s.Name, s.Example+"\n", accesslog.Options{Attributes: []string{"ip", "path", "status", "header.x-forwarded-for"}})
		if format != s.Name || len(records) != 1 || !strings.Contains(records[0], "192.0.2.") {
			t.Errorf("%s: %q of format %q", s.Name, records, format)
		}
	}
}

// Where a server writes quotes as clients send them, no user agent makes an address: a line
// that has the end of another in it is none, or is of who sent it.
func TestQuotesMakeNoAddress(t *testing.T) {
	for _, s := range accesslog.Shapes() {
		head, end, ok := strings.Cut(s.Example, "curl/8.5")
		if !ok {
			continue
		}
		forged := head + "x" + strings.ReplaceAll(end, "192.0.2.", "198.51.100.") + end
		format, err := accesslog.Detect([]byte(s.Example+"\n"), accesslog.Options{Attributes: []string{"ip"}})
		if err != nil {
			t.Fatal(s.Name, err)
		}
		honest, r := accesslog.Record{Values: make([][]byte, 1)}, accesslog.Record{Values: make([][]byte, 1)}
		if err := format.Parser().Parse([]byte(s.Example), &honest); err != nil {
			t.Fatal(s.Name, err)
		}
		if err := format.Parser().Parse([]byte(forged), &r); err == nil && !bytes.Equal(r.Values[0], honest.Values[0]) {
			t.Errorf("%s: %s is of %s", s.Name, forged, r.Values[0])
		}
	}
}

// Logs near a known format are refused, each with its first lines and what is
// near, and so are fields that could not be looked for.
func TestNotGuessed(t *testing.T) {
	good := `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5` + "\n"
	for _, test := range []struct {
		name, sample, want string
		fields             map[string]string
	}{
		{"a word before", "app42! " + good, "the formats are combined, common, vhost_combined, ", nil},
		{"half of another", strings.Repeat(good, 10) + strings.Repeat("hello\n", 5), `10 of the first 15 lines are common, and too many are not, such as
  "hello"`, nil},
		{"no client's address", strings.Repeat("user@example - - "+good[12:], 3), "the formats are combined", nil},
		{"JSON without a time", `{"ip":"192.0.2.1","when_it_was":5}` + "\n", "--field time=when_it_was", nil},
		{"a field of a combined log", good, "no fields with names", map[string]string{"ip": "nosuch"}},
		{"a time of another form", `{"ip":"192.0.2.1","ts":"1 March, ten"}` + "\n", `the field ts has "1 March, ten", where a time is like`, nil},
		{"a time of another form, named", `{"ip":"192.0.2.1","at":"1 March, ten"}` + "\n", `the field at has "1 March, ten", where a time is like`, map[string]string{"time": "at"}},
		{"an array on one line", `[{"ip":"192.0.2.1","ts":1},{"ip":"192.0.2.2","ts":2}]` + "\n", "jq -c '.[]' FILE | stint plan -", nil},
		{"an array over many lines", "[\n  {\n    \"ip\": \"192.0.2.1\",\n    \"ts\": 1\n  }\n]\n", "jq -c '.[]' FILE | stint plan -", nil},
		{"an object with an array", `{"records":[{"ip":"192.0.2.1","when":1},{"ip":"192.0.2.2","when":2}]}` + "\n", "jq -c '.records[]' FILE | stint plan -", nil},
		{"a table without a time", "when_it_was,ip,path\n5,192.0.2.1,/\n", "a table with no column that is known for the time; the columns are when_it_was, ip, path\nsay which has the time, such as --field time=when_it_was", nil},
		{"a table with times of another form", "time,ip,path\nMarch,192.0.2.1,/\n", `the column time has "March", where a time is like`, nil},
		{"UTF-16", "\xff\xfe1\x009\x002\x00", "UTF-16", nil},
		{"UTF-16 without a mark", "1\x009\x002\x00.\x000\x00\n\x00", "iconv -f UTF-16LE (or UTF-16BE)", nil},
		{"CR alone", strings.ReplaceAll(good+good, "\n", "\r"), "end in CR alone", nil},
		{"xz", "\xfd7zXZ\x00\x00\x04", "xz -dc", nil},
	} {
		_, err := accesslog.Detect([]byte(test.sample), accesslog.Options{Fields: test.fields})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v; want %q", test.name, err, test.want)
		}
	}
}

// NUL bytes, as a log that was cut in place has them, make no log binary.
func TestNULs(t *testing.T) {
	good := `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5` + "\n"
	for _, n := range []int{1, 5000, 64 << 10, 200_000} {
		log := strings.Repeat("\x00", n) + good + good + "\x00\x00" + good + good[:30] + "\x00" + good[30:] + strings.Repeat(good, 20)
		f, err := accesslog.From("nul", strings.NewReader(log), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if _, got := readFile(t, f, accesslog.Options{Attributes: []string{"ip"}}); len(got) != 23 || f.NULs != int64(n) {
			t.Errorf("behind %d NULs: %d lines and %d NULs", n, len(got), f.NULs)
		}
		f.Close()
	}
}

// A line longer than what is looked at hides no good log, also as the first.
func TestLongFirstLine(t *testing.T) {
	good := `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5` + "\n"
	for name, first := range map[string]string{
		"a request": strings.Replace(good, "/ HTTP", "/"+strings.Repeat("a", 10<<20)+" HTTP", 1),
		"garbage":   strings.Repeat("x", 300_000) + "\n",
	} {
		f, err := accesslog.From("long", strings.NewReader(first+strings.Repeat(good, 2000)), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		format, got := readFile(t, f, accesslog.Options{Attributes: []string{"ip"}})
		if format != "common" || len(got) < 2000 {
			t.Errorf("%s first: %s, %d lines", name, format, len(got))
		}
		f.Close()
	}
}

// Patterns in the notations of nginx, Apache and JSON lines, each with a line
// and what it says: time, ip, path, status, X-Api-Key.
func TestPatterns(t *testing.T) {
	for _, test := range []struct{ pattern, line, want string }{
		{`$remote_addr - $user [$time_local] "$request" $status`, `192.0.2.1 - ann lee [17/May/2015:10:05:03 +0000] "GET /a?b HTTP/1.1" 200 5`, "2015-05-17T10:05:03Z 192.0.2.1|/a|200|"},
		{`$msec ${remote_addr}:$remote_port "$request_uri" $status "$http_x_api_key"`, `1431857103.250 192.0.2.1:99 "/a" 404 "k\"1"`, `2015-05-17T10:05:03.25Z 192.0.2.1|/a|404|k\"1`},
		{`[$remote_addr:$remote_port] [$time_local] $uri`, `[2001:db8::1:99] [17/May/2015:10:05:03 +0000] /a`, "2015-05-17T10:05:03Z 2001:db8::1|/a||"},
		{`$remote_addr:$remote_port, [$time_local] $uri`, `192.0.2.1:99, [17/May/2015:10:05:03 +0000] /a`, "2015-05-17T10:05:03Z 192.0.2.1|/a||"},
		{`$remote_addr:$remote_port [$time_local] $uri`, `unix:: [17/May/2015:10:05:03 +0000] /a`, "2015-05-17T10:05:03Z unix|/a||"},
		{`%h %l %u %t "%r" %>s %b`, `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5`, "2015-05-17T10:05:03Z 192.0.2.1|/a|200|"},
		{`%v:%p %a %t \"%r\" %>s %O \"%{X-Api-Key}i\"`, `www:80 192.0.2.1 [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5 "k"`, "2015-05-17T10:05:03Z 192.0.2.1|/a|200|k"},
		{`%{%Y-%m-%dT%H:%M:%S%z}t %a %U %s`, `2015-05-17T10:05:03+0000 192.0.2.1 /a 200`, "2015-05-17T10:05:03Z 192.0.2.1|/a|200|"},
		{`$date $time $remote_addr $uri`, `2015-05-17 10:05:03 192.0.2.1 /a`, "2015-05-17T10:05:03Z 192.0.2.1|/a||"},
		{`$remote_addr [$time_local]`, `2023-11-14T22:13:20.1Z stdout F 192.0.2.1 [17/May/2015:10:05:03 +0000]`, "2015-05-17T10:05:03Z 192.0.2.1|||"},
	} {
		format, got := read(t, test.pattern, test.line+"\n", accesslog.Options{Format: test.pattern, Attributes: []string{"ip", "path", "status", "header.x-api-key"}})
		if len(got) != 1 || got[0] != test.want {
			t.Errorf("%s: %q of %s, want %q", test.pattern, got, format, test.want)
		}
	}
	for pattern, want := range map[string]string{
		"combined": "no field in it", "$remote_addr $status": "no time in it", "$time_local$remote_addr": "nothing between",
		"%Q %t": "no directive", `{"a":"$remote_addr"}`: "no time",
	} {
		if _, err := accesslog.ParsePattern(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", pattern, err, want)
		}
	}
}

func TestFormats(t *testing.T) {
	for _, test := range formats {
		o := accesslog.Options{Attributes: all, Latest: time.Date(2025, 1, 10, 0, 0, 0, 0, time.UTC)}
		format, records := read(t, test.name, test.log, o)
		if format != test.format || len(records) != 1 {
			t.Errorf("%s: %d records of format %q, want one of %q", test.name, len(records), format, test.format)
			continue
		}
		if got := records[0]; got != test.at+" "+test.want {
			t.Errorf("%s:\n%s, want\n%s", test.name, got, test.at+" "+test.want)
		}
	}
}

// read returns the records of a log as text; bad lines are left out.
func read(t *testing.T, name, log string, o accesslog.Options) (format string, records []string) {
	t.Helper()
	f, err := accesslog.From(name, strings.NewReader(log), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return readFile(t, f, o)
}

func readFile(t *testing.T, f *accesslog.File, o accesslog.Options) (format string, records []string) {
	t.Helper()
	found, err := f.Detect(o)
	if err != nil {
		t.Errorf("%v", err)
		return "", nil
	}
	p := found.Parser()
	r := accesslog.Record{Values: make([][]byte, len(o.Attributes))}
	for {
		block, err := f.Next(nil)
		if errors.Is(err, io.EOF) {
			return found.Name, records
		}
		if err != nil {
			t.Fatal(err)
		}
		for len(block) > 0 {
			var line []byte
			line, block = accesslog.Line(block)
			if p.Parse(line, &r) == nil {
				at := time.Unix(0, r.At).UTC().Format(time.RFC3339Nano)
				records = append(records, at+" "+string(bytes.Join(r.Values, []byte("|"))))
			}
		}
	}
}

// Fields of any name, and dots that lead into objects.
func TestFields(t *testing.T) {
	o := accesslog.Options{
		Attributes: []string{"ip", "header.x-api-key", "a.b"},
		Fields:     map[string]string{"time": "When", "ip": "who.addr", "header.x-api-key": "token"},
	}
	_, got := read(t, "fields", `{"when":1709640000123,"who":{"addr":"192.0.2.1"},"token":"t","a":{"b":true,"c":[{"b":1}]}}`, o)
	if want := []string{"2024-03-05T12:00:00.123Z 192.0.2.1|t|true"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	o.Fields["ip"] = "addr"
	_, got = read(t, "table", "when;token;addr\n2024-03-05T12:00:00Z;t;192.0.2.1\n", o)
	if want := []string{"2024-03-05T12:00:00Z 192.0.2.1|t|"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestBadLines tells lines that are no requests from bad lines.
func TestBadLines(t *testing.T) {
	good := `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5`
	format, err := accesslog.Detect([]byte(good+"\n"), accesslog.Options{Attributes: all})
	if err != nil {
		t.Fatal(err)
	}
	p := format.Parser()
	r := accesslog.Record{Values: make([][]byte, len(all))}
	if err := p.Parse(nil, &r); !errors.Is(err, accesslog.ErrSkip) {
		t.Errorf("an empty line: %v", err)
	}
	for _, line := range []string{
		"x", " ", "x y", "192.0.2.1 - - [", good[:40], good[:60],
		strings.Replace(good, "May", "Mai", 1), strings.Replace(good, "17/", "32/", 1),
		strings.Replace(good, "10:05", "24:05", 1), strings.Replace(good, ":03", ":61", 1),
		strings.Replace(good, "2015", "1969", 1), strings.Replace(good, "+0000", "+00:0", 1),
		strings.Replace(good, "+0000", "*0000", 1), strings.Replace(good, "200 5", "20 5", 1),
		strings.Replace(good, "17/May", "29/Feb", 1), strings.Replace(good, `1.1"`, "1.1", 1),
		good + " " + good, good + good, good + "\r" + good, good + ` "-" "an agent" ` + good, good + ` "-" "torn wit` + good, // several requests
		good + ` ] "`,
	} {
		if err := p.Parse([]byte(line), &r); err == nil || errors.Is(err, accesslog.ErrSkip) {
			t.Errorf("%q is read as %s (%v)", line, time.Unix(0, r.At).UTC(), err)
		}
	}
	if err := p.Parse([]byte(good+` "-" "an agent that says [17/May/2015:10:05:03 +0000] "`), &r); err != nil {
		t.Errorf("what a client writes ends a line: %v", err)
	}
}

// A line with a field twice is not read: other programs take the last one.
func TestTwice(t *testing.T) {
	for good, fields := range map[string][]string{
		`{"time": "2026-11-20T10:00:00Z", "remote_addr": "192.0.2.1", "uri": "/a", "request": "GET / HTTP/1.1", "x": 1}`: {`"uri": "/b"`, `"URI": "-"`, `"remote_addr": "192.0.2.2"`, `"time": "2026-11-20T11:00:00Z"`, `"request": "GET /b HTTP/1.1"`},
		`level=info time=2026-11-20T10:00:00Z remote_addr=192.0.2.1 uri=/a x=1 y=2`:                                      {"uri=/b", "remote_addr=192.0.2.2", "time=2026-11-20T11:00:00Z"},
	} {
		format, err := accesslog.Detect([]byte(good+"\n"), accesslog.Options{Attributes: all})
		if err != nil {
			t.Fatal(err)
		}
		p, r := format.Parser(), accesslog.Record{Values: make([][]byte, len(all))}
		with := func(field string) string {
			if object, ok := strings.CutSuffix(good, "}"); ok {
				return object + ", " + field + "}"
			}
			return good + " " + field
		}
		for _, field := range fields {
			if err := p.Parse([]byte(with(field)), &r); err == nil || errors.Is(err, accesslog.ErrSkip) || errors.Is(err, accesslog.ErrAside) {
				t.Errorf("%s is read: %v", with(field), err)
			}
		}
		other := map[bool]string{true: `"x": 2`, false: "x=2"}[good[0] == '{']
		if err := p.Parse([]byte(with(other)), &r); err != nil {
			t.Errorf("%s: %v", with(other), err)
		}
	}
}

// TestDetectsNoJoinedLines: lines that have lost every second end are in no format.
func TestDetectsNoJoinedLines(t *testing.T) {
	good := `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/8.5"`
	for _, end := range []string{"", " ", "\t"} {
		if f, err := accesslog.Detect([]byte(strings.Repeat(good+end+good+"\n", 20)), accesslog.Options{Attributes: all}); err == nil {
			t.Errorf("%q: taken as %s", end, f.Name)
		}
	}
}

// TestJoinedLines: a line that holds two is bad, in each format.
func TestJoinedLines(t *testing.T) {
	var lines []string
	for _, s := range accesslog.Shapes() {
		lines = append(lines, s.Example)
	}
	lines = append(lines,
		`ts=2024-05-06T07:08:09Z ip=192.0.2.1 method=GET path=/ status=200 bytes=5`,
		`2024-05-06T07:08:09Z,192.0.2.1,GET,/,200`)
	for _, line := range lines {
		head := ""
		if strings.HasPrefix(line, "2024-05-06T07:08:09Z,") {
			head = "time,ip,method,path,status\n"
		}
		f, err := accesslog.Detect([]byte(head+strings.Repeat(line+"\n", 20)), accesslog.Options{Attributes: all})
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		p, r := f.Parser(), accesslog.Record{Values: make([][]byte, len(all))}
		if err := p.Parse([]byte(line), &r); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if err := p.Parse([]byte(line+" "+line), &r); err == nil {
			t.Errorf("%s: two lines are one request of %s", f.Name, line)
		}
	}
	f, err := accesslog.Detect([]byte(strings.Repeat(`192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/8.5"`+"\n", 20)), accesslog.Options{Attributes: all})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Parser().Parse([]byte(`192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/8.5"00 2337 "-" "curl/8.5"`), &accesslog.Record{Values: make([][]byte, len(all))}); err == nil {
		t.Error("a line with the end of another is a request")
	}
}

func TestDetectRefuses(t *testing.T) {
	for name, sample := range map[string]string{
		"binary":         "\x7fELF\x00\x01\n\x02",
		"text":           "Call me Ishmael.\nSome years ago\n",
		"a JSON list":    "[1,2]\n[3]\n",
		"no time":        `{"ip":"192.0.2.1"}` + "\n",
		"c-ip twice":     "#Fields: date time c-ip cs-uri-stem c-ip\n2024-03-05 12:00:00 10.0.0.1 / 192.0.2.1\n",
		"two columns ip": "time,ip,path,ip\n2024-03-05T12:00:00Z,10.0.0.1,/,192.0.2.1\n",
		"no time here":   "ip,path\n192.0.2.1,/\n",
		"mostly bad":     `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5` + "\nx\ny\nz\n",
	} {
		if f, err := accesslog.Detect([]byte(sample), accesslog.Options{Attributes: all}); err == nil {
			t.Errorf("%s: taken as %s", name, f.Name)
		}
	}
	if f, err := accesslog.Detect([]byte("\n\n"), accesslog.Options{}); err != nil || f.Name != "empty" {
		t.Errorf("nothing: %q, %v", f.Name, err)
	}
}

// An error about a log that is garbage in part quotes what could not be read.
func TestDetectQuotesTheBad(t *testing.T) {
	combined := `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/8.5"` + "\n"
	object := `{"time":"2025-03-04T00:00:00Z","remote_addr":"192.0.2.1","request":"GET / HTTP/1.1"}` + "\n"
	for name, test := range map[string]struct{ sample, format, want string }{
		"half":      {strings.Repeat(combined, 3) + strings.Repeat("garbage\n"+combined, 40), "", "are combined"},
		"a third":   {combined + strings.Repeat("garbage\ngarbage\n"+combined, 30), "", "are combined"},
		"a fifth":   {strings.Repeat(combined, 5) + strings.Repeat("garbage\ngarbage\ngarbage\ngarbage\n"+combined, 15), "", "are combined"},
		"a few":     {strings.Repeat(combined, 3) + strings.Repeat("garbage\n", 90), "", "no format"},
		"half JSON": {strings.Repeat(object, 3) + strings.Repeat("garbage\n"+object, 40), "", "are nginx JSON"},
		"stated":    {strings.Repeat(combined, 3) + strings.Repeat("garbage\n"+combined, 40), `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`, "format that was stated"},
	} {
		_, err := accesslog.Detect([]byte(test.sample), accesslog.Options{Attributes: all, Format: test.format})
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), `"garbage"`) || strings.Contains(err.Error(), `"192.0.2.1`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Compressed or not, the lines are the same, whatever their length and however
// they lie in blocks.
func TestCompressed(t *testing.T) {
	var text bytes.Buffer
	line := `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET /` + strings.Repeat("x", 3000) + ` HTTP/1.1" 200 5` + "\n"
	for i := range 1000 {
		text.WriteString(line[:60] + line[60+i*3%2900:])
	}
	text.WriteString(strings.TrimSuffix(line, "\n"))
	zipped := func(w io.WriteCloser, b *bytes.Buffer) []byte {
		if _, err := w.Write(text.Bytes()); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	var gz, zs bytes.Buffer
	z, err := zstd.NewWriter(&zs)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"plain": text.Bytes(), "gzip": zipped(gzip.NewWriter(&gz), &gz), "zstd": zipped(z, &zs),
	} {
		path := filepath.Join(t.TempDir(), "log")
		disk.Write(t, path, string(data))
		f, err := accesslog.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		_, got := readFile(t, f, accesslog.Options{Attributes: []string{"status"}})
		if len(got) != 1001 {
			t.Errorf("%s: %d lines, want 1001", name, len(got))
		}
		if f.Position() != f.Size || f.Size != int64(len(data)) {
			t.Errorf("%s: read %d of %d bytes", name, f.Position(), f.Size)
		}
		f.Close()
	}
	// One that is cut off says so, after the lines that are there.
	for _, data := range [][]byte{gz.Bytes(), zs.Bytes()} {
		f, err := accesslog.From("cut", bytes.NewReader(data[:len(data)*3/4]), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		var got int
		for {
			block, err := f.Next(nil)
			if err != nil {
				if err == io.EOF {
					t.Error("a log that is cut off ends as if it were whole")
				}
				break
			}
			got += bytes.Count(block, []byte("\n"))
		}
		f.Close()
		t.Logf("%d lines of a log that is cut off", got)
	}
}

// A file that grows while it is read gives the lines it had when it was opened.
func TestGrowing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	line := `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5` + "\n"
	disk.Write(t, path, strings.Repeat(line, 5000))
	f, err := accesslog.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	more, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer more.Close()
	if _, err := more.WriteString(strings.Repeat(line, 5000)); err != nil {
		t.Fatal(err)
	}
	if _, got := readFile(t, f, accesslog.Options{Attributes: []string{"ip"}}); len(got) != 5000 {
		t.Errorf("%d lines, want those 5000 that there were", len(got))
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := accesslog.Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := accesslog.Open(t.TempDir()); err == nil {
		t.Error("a directory is opened")
	}
}

// The combined log is read without allocating.
func TestCombinedAllocates(t *testing.T) {
	line := []byte(formats[0].log)
	format, err := accesslog.Detect(line, accesslog.Options{Attributes: all})
	if err != nil {
		t.Fatal(err)
	}
	p := format.Parser()
	r := accesslog.Record{Values: make([][]byte, len(all))}
	if n := testing.AllocsPerRun(100, func() {
		if err := p.Parse(line, &r); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a line", n)
	}
}
