# check IP: status 0 if the request may pass, also when there is no answer.
check() {
	code=$(curl -s -o /dev/null -m 0.25 -w '%{http_code}' -H 'Content-Type: application/json' \
		-d '{"attributes":{"path":"/api","ip":"'"$1"'"}}' "${STINT_URL:-http://127.0.0.1:8080}/v1/check")
	case $code in
	200 | 000) return 0 ;;
	*) return 1 ;; # 429 and 403: denied; 400: wrong; 503: closed
	esac
}
