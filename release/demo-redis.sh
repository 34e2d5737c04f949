#!/bin/sh
# Two processes of stint that share one Redis, for "make demo CASE=redis". Ctrl-C ends all three.
set -eu
stint=${STINT:-bin/stint} redis=${REDIS_PORT:-6390} a=${PORT_A:-8080} b=${PORT_B:-8081}
server=$(command -v redis-server || command -v valkey-server) || {
	echo 'CASE=redis needs redis-server or valkey-server, such as Debian has' >&2
	exit 2
}
pids=
trap 'kill $pids 2>/dev/null; wait; exit 0' INT TERM
"$server" --port "$redis" --bind 127.0.0.1 --save '' --appendonly no >/dev/null &
pids=$!
sleep 1
for port in "$a" "$b"; do
	"$stint" serve --limit '10/m' --key ip --http "127.0.0.1:$port" --store "redis://127.0.0.1:$redis" &
	pids="$pids $!"
done
sleep 2
cat <<END

Two processes count 10 a minute for each address in one Redis. Ask eight times at each:
ten of the sixteen get 200, the others 429.

  for port in $a $b; do for i in 1 2 3 4 5 6 7 8; do
    curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:\$port/v1/check \\
      --json '{"attributes":{"ip":"192.0.2.7"}}'; done; done; echo

Ctrl-C ends all three.
END
wait
