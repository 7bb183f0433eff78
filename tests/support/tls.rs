//! Certificates of a story's own, and a TLS backend made of a second, stock nginx.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::nginx::Nginx;

/// A self-signed certificate and its key, in PEM files.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub pem: PathBuf,
    pub key: PathBuf,
}

impl Certificate {
    /// Made for `names`, in `dir`.
    pub fn make(dir: &Path, names: &[&str]) -> Self {
        let name = names.first().expect("a certificate has a name");
        let (pem, key) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
        let alternatives: Vec<String> = names.iter().map(|n| format!("DNS:{n}")).collect();
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
        openssl.args(["-nodes", "-days", "30", "-subj", &format!("/CN={name}")]);
        openssl.args(["-addext", &format!("subjectAltName={}", alternatives.join(","))]);
        openssl.arg("-out").arg(&pem).arg("-keyout").arg(&key);
        let made = openssl.stdin(Stdio::null()).output().expect("openssl is installed");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self { pem, key }
    }

    /// A stock nginx that serves every name of `names` on one TLS port, `{web}`.
    ///
    /// The answer's headers tell the name asked for by SNI (`X-Backend`), the connection
    /// (`X-Connection`), how many requests it has carried (`X-Requests`), and whether its TLS
    /// session was resumed (`X-Resumed`: `r` or `.`), with which protocol (`X-Protocol`).
    /// The body is the `Host` asked for. Its certificates are `{name}.pem` under its prefix.
    pub fn backend(names: &[&str], protocols: &str) -> Nginx {
        let conf = Nginx::stock();
        let mut http = format!(
            "ssl_protocols {protocols};\nssl_session_cache shared:tls:1m;\n\
             keepalive_requests 1000000;\n"
        );
        for name in names {
            Self::make(conf.prefix(), &[name]);
            write!(
                http,
                "server {{ listen {{web}} ssl; server_name {name};
                 ssl_certificate {{prefix}}/{name}.pem; ssl_certificate_key {{prefix}}/{name}.key;
                 add_header X-Backend $ssl_server_name always;
                 add_header X-Connection $connection always;
                 add_header X-Requests $connection_requests always;
                 add_header X-Resumed $ssl_session_reused always;
                 add_header X-Protocol $ssl_protocol always;
                 location / {{ return 200 $http_host; }} }}\n"
            )
            .expect("a String takes all");
        }
        conf.http(http).start()
    }
}
