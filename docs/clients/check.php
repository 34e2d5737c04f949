<?php
// stint_check asks whether a request may pass: its status, the seconds to wait first, and the fields to send on.
function stint_check(array $attributes, $cost = 1): array
{
	static $told = -INF;
	foreach ($attributes as $value) {
		if (!is_string($value) || strlen($value) > 8192) {
			return [400, 0, []]; // stint would not read it
		}
	}
	$body = json_encode(["attributes" => (object) $attributes, "cost" => $cost]);
	if ($body === false || !is_int($cost) || $cost < 0) {
		return [400, 0, []];
	}
	$url = (getenv("STINT_URL") ?: "http://127.0.0.1:8080") . "/v1/check";
	$answer = @file_get_contents($url, false, stream_context_create(["http" => [
		"method" => "POST", "header" => "Content-Type: application/json", "content" => $body,
		"timeout" => 0.25, "ignore_errors" => true, "follow_location" => 0,
	]]));
	$answer = json_decode((string) $answer, true);
	if (!is_array($answer) || !preg_match('~^HTTP/\S+ (\d+)~', $http_response_header[0] ?? "", $status)) {
		if (microtime(true) - $told >= 60) {
			$told = microtime(true);
			error_log("no answer from stint, so requests pass: " . (error_get_last()["message"] ?? ""));
		}
		return [200, 0, []]; // no answer: let it pass
	}
	$fields = preg_grep('/^(ratelimit|x-ratelimit|retry-after)/i', $http_response_header);
	return [(int) $status[1], ($answer["delay_ms"] ?? 0) / 1000, array_values($fields)];
}
