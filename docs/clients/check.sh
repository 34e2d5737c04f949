# check IP: status 0 if the request may pass, also when there is no answer.
check() {
	case $1 in *[!0-9A-Fa-f.:]*) return 1 ;; esac # no address
	[ ${#1} -le 45 ] || return 1
	code=$(curl -qs --noproxy '*' -o /dev/null -m 0.25 -w '%{http_code}' -H 'Content-Type: application/json' \
		-d '{"attributes":{"path":"/api","ip":"'"$1"'"}}' "${STINT_URL:-http://127.0.0.1:8080}/v1/check")
	case $code in
	200) return 0 ;;
	000) ;;
	*) return 1 ;; # 429 and 403: denied; 400: wrong; 503: closed
	esac
	now=$(date +%s)
	if [ $((now - ${told:-0})) -ge 60 ]; then
		told=$now
		echo "no answer from stint, so requests pass" >&2
	fi
}
