<?php
// Says what PHP understood of a request.
function last($value) { return is_array($value) ? last(end($value)) : $value; }
header('Echo: 1');
header('Content-Type: application/json');
echo json_encode([
    'path' => rawurldecode(strtok($_SERVER['REQUEST_URI'], '?')), 'host' => $_SERVER['HTTP_HOST'] ?? '', 'key' => $_SERVER['HTTP_X_API_KEY'] ?? null,
    'cookie' => last($_COOKIE['user_id'] ?? $_COOKIE['session'] ?? null), 'query' => last($_GET['api_key'] ?? $_GET['action'] ?? null),
], JSON_INVALID_UTF8_SUBSTITUTE);
