# Says what Rack understood of a request.
require 'json'
require 'rack'
use Rack::MethodOverride
last = ->(v) { v.is_a?(Hash) ? last.(v.values.last) : v.is_a?(Array) ? last.(v.last) : v }
some = ->(&read) { begin last.(read.call) rescue nil end }
run lambda { |env|
  request = Rack::Request.new(env)
  text = { 'path' => env['PATH_INFO'], 'host' => env['HTTP_HOST'], 'method' => env['REQUEST_METHOD'], 'header.x-api-key' => env['HTTP_X_API_KEY'] }
  %w[session user_id].each { |name| text["cookie.#{name}"] = some.() { request.cookies[name] } }
  %w[action api_key].each { |name| text["query.#{name}"] = some.() { request.GET[name] } }
  text = text.transform_values { |v| v && v.to_s.dup.force_encoding('UTF-8').scrub }
  [200, { 'echo' => '1', 'content-type' => 'application/json' }, [JSON.generate(text)]]
}
