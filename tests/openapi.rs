//! What nginx answers with for tools is the document of the repository.

mod support;

use support::*;

#[test]
fn the_document_is_served_as_it_is() {
    let nginx = Nginx::builder()
        .http(
            "peerage_zone main 1m; peerage_zone other 1m;
             upstream app { peerage main; server 10.0.0.1:8080; server 10.0.0.2:8080; }",
        )
        .with_api("write=off")
        .start();
    let reply = nginx.api().call("GET", "openapi.json", None);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.text(), include_str!("../docs/openapi.json"));
    let root = nginx.api().ok("GET", "", None);
    assert_eq!(root["links"]["openapi"], "openapi.json");
    assert_eq!(reply.json()["info"]["version"], root["version"]);
}
