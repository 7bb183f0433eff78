# consul-template -config peerage.hcl

consul {
  address = "127.0.0.1:8500"
}

template {
  source      = "/etc/peerage/app.json.ctmpl"
  destination = "/run/peerage/app.json"
  command     = "/usr/local/bin/put.sh /run/peerage/app.json http://127.0.0.1:8081/api/v1/upstreams/app"

  # Changes that come together are one PUT.
  wait {
    min = "1s"
    max = "5s"
  }
}
