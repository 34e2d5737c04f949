<?php
// Says what PHP understood of a request; of the path, what Apache did where it is behind one.
function last($value) { return is_array($value) ? last(end($value)) : $value; }
header('Echo: 1');
header('Content-Type: application/json');
echo json_encode([
    'path' => PHP_SAPI == 'cgi-fcgi' ? $_SERVER['SCRIPT_NAME'] : rawurldecode(strtok($_SERVER['REQUEST_URI'], '?')), 'host' => $_SERVER['HTTP_HOST'] ?? null,
    'method' => $_SERVER['REQUEST_METHOD'], 'header.x-api-key' => $_SERVER['HTTP_X_API_KEY'] ?? null,
    'cookie.session' => last($_COOKIE['session'] ?? null), 'cookie.user_id' => last($_COOKIE['user_id'] ?? null),
    'query.action' => last($_GET['action'] ?? null), 'query.api_key' => last($_GET['api_key'] ?? null),
], JSON_INVALID_UTF8_SUBSTITUTE);
