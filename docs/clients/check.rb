require "json"
require "net/http"

module Stint
  URL = URI(ENV.fetch("STINT_URL", "http://127.0.0.1:8080") + "/v1/check")
  @told = -Float::INFINITY

  # check asks whether a request may pass: its status, the seconds to wait first, and the fields to send on.
  def self.check(attributes, cost = 1)
    text = ->(value) { value.is_a?(String) && value.bytesize <= 8192 && value.dup.force_encoding("UTF-8").valid_encoding? }
    fit = attributes.all? { |name, value| text.(name.to_s) && text.(value) } && cost.is_a?(Integer) && cost >= 0
    return [400, 0, {}] unless fit # stint would not read it

    http = Net::HTTP.new(URL.host, URL.port, nil) # straight, whatever http_proxy says
    http.use_ssl = URL.scheme == "https"
    http.open_timeout = http.read_timeout = http.write_timeout = 0.25
    response = http.post(URL.path, JSON.generate({ attributes: attributes, cost: cost }), "Content-Type" => "application/json")
    wait = JSON.parse(response.body).fetch("delay_ms", 0) / 1000.0
    fields = response.each_header.select { |name, _| name.start_with?("ratelimit", "x-ratelimit", "retry-after") }
    [response.code.to_i, wait, fields.to_h]
  rescue StandardError => error
    now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    if now - @told >= 60
      @told = now
      warn "no answer from stint, so requests pass: #{error.message}"
    end
    [200, 0, {}] # no answer: let it pass
  end
end
