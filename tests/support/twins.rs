//! An upstream taken over and its twin of stock nginx, in one nginx: `/ours` and `/stock`.

use super::{Backend, Conf, Nginx};

/// Both with these lines, in which a backend is named in braces.
pub fn twins(lines: &str, backends: &[Backend]) -> Conf {
    let conf = Nginx::builder().http(twins_text(lines)).with_api("write=on");
    backends.iter().fold(conf, |conf, b| conf.set(&b.name(), b))
}

/// The text of http{} for that.
pub fn twins_text(lines: &str) -> String {
    format!(
        "peerage_zone main 1m;
         proxy_next_upstream error timeout http_500;
         upstream stock {{ {lines} }}
         upstream ours {{ peerage main; {lines} }}
         server {{
             listen {{web}};
             add_header X-Tried $upstream_addr always;
             location /stock {{ proxy_pass http://stock; }}
             location /ours {{ proxy_pass http://ours; }}
         }}"
    )
}
