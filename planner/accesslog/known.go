package accesslog

import (
	"slices"
	"strings"
)

// A shape is a text format that servers write by default: its name, its pattern,
// and a line of it.
type shape struct {
	name, pattern, example string
	whole                  bool // nothing follows: quotes that clients send are not escaped, and would make fields
	parsed                 *Pattern
}

// shapes are the text formats that are recognised. Where two begin alike, the longer one is first.
var shapes = parsed([]shape{
	{
		name:    "vhost_combined",
		pattern: `$host $remote_addr $ident $remote_user [$time_local] "$request" $status $bytes_sent "$http_referer" "$http_user_agent"`,
		example: `www.example.com:443 192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/8.5"`,
	}, {
		name:    "vhost_common",
		pattern: `$host $remote_addr $ident $remote_user [$time_local] "$request" $status $bytes_sent`,
		example: `www.example.com:80 192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5`,
	}, {
		name:    "ingress-nginx before 0.25",
		pattern: `$remote_addr - [$http_x_forwarded_for] - $remote_user [$time_local] "$request" $status $bytes_sent "$http_referer" "$http_user_agent"`,
		example: `10.8.0.1 - [192.0.2.1] - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/8.5" 89 0.001 [default-web-80] 10.0.0.1:8080 5 0.001 200`,
	}, {
		name:    "Nginx Proxy Manager",
		pattern: `[$time_local] $cache $upstream_status $status - $request_method $scheme $host "$request_uri" [Client $remote_addr] [Length $bytes_sent] [Gzip $gzip] [Sent-to $server] "$http_user_agent" "$http_referer"`,
		example: `[17/May/2015:10:05:03 +0000] - 200 200 - GET https www.example.com "/" [Client 192.0.2.1] [Length 5] [Gzip -] [Sent-to 10.0.0.1] "curl/8.5" "-"`,
	}, {
		name:    "Gin",
		pattern: `[GIN] $date - $time | $status | $latency | $remote_addr | $request_method "$request_uri"`,
		example: `[GIN] 2015/05/17 - 10:05:03 | 200 |     1.2345ms |       192.0.2.1 | GET      "/"`,
	}, {
		name:    "common with fractions of a second",
		pattern: `$remote_addr $ident $remote_user [$time_local] "$request" $status $bytes_sent "$http_referer" "$http_user_agent"`,
		example: `192.0.2.1 - - [17/May/2015:10:05:03.123 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/8.5"`,
	}, {
		name: "Istio text",
		pattern: `[$start_time] "$method $path $protocol" $status $flags $details $termination "$failure" $received $bytes_sent $duration $upstream_time` +
			` "$http_x_forwarded_for" "$http_user_agent" "$request_id" "$authority" "$upstream" $cluster $upstream_local $downstream_local $downstream_remote_address $server_name $route`,
		whole:   true,
		example: `[2024-03-05T12:00:00.001Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 4 4 "-" "curl/8.5" "84961386-6d84" "httpbin:8000" "10.44.1.27:80" outbound|8000||httpbin.foo.svc.cluster.local 10.44.1.23:37652 10.0.45.184:8000 192.0.2.1:46520 - default`,
	}, {
		name: "Envoy text",
		pattern: `[$start_time] "$method $path $protocol" $status $flags $received $bytes_sent $duration $upstream_time` +
			` "$http_x_forwarded_for" "$http_user_agent" "$request_id" "$authority" "$upstream"`,
		whole:   true,
		example: `[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "192.0.2.1" "nsq2http" "cc21d9b0-cf5c" "locations" "tcp://10.0.0.1:80"`,
	}, {
		name: "AWS load balancer",
		pattern: `$type $time $elb $client $target $request_time $target_time $response_time $status $target_status $received $bytes_sent` +
			` "$request" "$http_user_agent"`,
		example: `https 2018-07-02T22:23:00.186641Z app/my-lb/50dc6c495c0c9188 192.0.2.1:2817 10.0.0.1:80 0.086 0.048 0.037 200 201 0 57 "GET https://www.example.com:443/ HTTP/1.1" "curl/8.5" ECDHE TLSv1.2`,
	}, {
		name:    "classic ELB",
		pattern: `$time $elb $client $backend $request_time $backend_time $response_time $status $backend_status $received $bytes_sent "$request"`,
		example: `2015-05-13T23:39:43.945958Z my-elb 192.0.2.1:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 "GET http://example.com:80/ HTTP/1.1" "curl/8.5" - -`,
	}, {
		name:    "S3",
		pattern: `$owner $bucket [$time_local] $remote_ip $user $request_id $operation $object "$request" $status $error $bytes_sent $size $total $turnaround "$http_referer" "$http_user_agent"`,
		example: `79a59df900b949e5 awsexamplebucket [06/Feb/2019:00:00:38 +0000] 192.0.2.3 79a59df900b949e5 3E57427F3EXAMPLE REST.GET.VERSIONING - "GET /awsexamplebucket?versioning HTTP/1.1" 200 - 113 - 7 - "-" "S3Console/0.4" -`,
	}, {
		name:    "HAProxy",
		pattern: `$client:$client_port [$time_local] $frontend $server $timers $status $bytes_sent $request_cookie $response_cookie $state $connections $queues {$captured} {$answered} "$request"`,
		example: `192.0.2.1:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {example.com} {} "GET /index.html HTTP/1.1"`,
	}, {
		name:    "HAProxy",
		pattern: `$client:$client_port [$time_local] $frontend $server $timers $status $bytes_sent $request_cookie $response_cookie $state $connections $queues {$captured} "$request"`,
		example: `192.0.2.1:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {example.com} "GET /index.html HTTP/1.1"`,
	}, {
		name:    "HAProxy",
		pattern: `$client:$client_port [$time_local] $frontend $server $timers $status $bytes_sent $request_cookie $response_cookie $state $connections $queues "$request"`,
		example: `192.0.2.1:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 "GET /index.html HTTP/1.1"`,
	}, {
		name:    "Squid",
		pattern: `$time $elapsed $client $result/$status $bytes_sent $method $url $user $hierarchy $type`,
		example: `1286536308.779    180 192.0.2.1 TCP_MISS/200 411 GET http://example.com/ - DIRECT/192.0.2.9 text/html`,
	},
})

func parsed(all []shape) []shape {
	for i := range all {
		p, err := ParsePattern(all[i].pattern)
		if err != nil {
			panic(err)
		}
		p.whole = all[i].whole
		all[i].parsed = p
	}
	return all
}

// knownNames returns the names of the formats that are recognised.
func knownNames() string {
	all := []string{"combined", "common"}
	for _, s := range shapes {
		if !slices.Contains(all, s.name) {
			all = append(all, s.name)
		}
	}
	return strings.Join(append(all, "JSON with an object a line", "logfmt", "CSV, TSV or W3C with a line that names the columns"), ", ")
}
