# Says what Rack understood of a request.
require 'json'
require 'rack'
last = ->(v) { v.is_a?(Hash) ? last.(v.values.last) : v.is_a?(Array) ? last.(v.last) : v }
run lambda { |env|
  request = Rack::Request.new(env)
  query = begin last.(request.GET['action'] || request.GET['api_key']) rescue nil end
  cookie = begin last.(request.cookies['session'] || request.cookies['user_id']) rescue nil end
  text = { path: env['PATH_INFO'], host: env['HTTP_HOST'], key: env['HTTP_X_API_KEY'], cookie: cookie, query: query }
  text = text.transform_values { |v| v && v.to_s.dup.force_encoding('UTF-8').scrub }
  [200, { 'echo' => '1', 'content-type' => 'application/json' }, [JSON.generate(text)]]
}
