//! The words of `peerage_redis` beside the name.

use super::conf::given;
use crate::addr::ServerAddr;
use crate::check::words::{each, flag, millis};
use crate::declare::{DeclareError, number};
use crate::field::FieldError;
use crate::units::{Millis, parse_size};

/// What `peerage_redis` says beside the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisConf {
    /// Where it is; of Sentinel, where that is.
    pub servers: Vec<ServerAddr>,
    /// Which of its databases.
    pub db: u32,
    /// Who asks.
    pub user: Option<String>,
    /// The file with the password.
    pub password_file: Option<String>,
    /// How long an answer may take, ms.
    pub timeout: u64,
    /// Connections that each worker keeps.
    pub keepalive: u32,
    /// Bytes of the cache.
    pub cache: u64,
    /// The file of what was cached last.
    pub state: Option<String>,
    /// Over TLS.
    pub tls: bool,
    /// The file of authorities.
    pub ca: Option<String>,
    /// The name in the certificate.
    pub tls_name: Option<String>,
    /// The name of the master, where servers are Sentinels.
    pub sentinel: Option<String>,
    /// What keys begin with.
    pub tenant_prefix: String,
    /// What apps begin with.
    pub app_prefix: String,
    /// What is there as long as the data is.
    pub epoch_key: Option<String>,
    /// Whether the store is to tell what changes.
    pub tracking: bool,
}

impl Default for RedisConf {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            db: 0,
            user: None,
            password_file: None,
            timeout: 200,
            keepalive: 8,
            cache: 32 << 20,
            state: None,
            tls: false,
            ca: None,
            tls_name: None,
            sentinel: None,
            tenant_prefix: "tenant:".to_owned(),
            app_prefix: "app:".to_owned(),
            epoch_key: None,
            tracking: true,
        }
    }
}

impl RedisConf {
    /// The smallest cache, in bytes.
    pub const MIN_CACHE: u64 = 512 << 10;
    /// The longest time for an answer, ms.
    const MAX_TIMEOUT: u64 = 60_000;
    /// The port where none is said.
    const PORT: &'static str = ":6379";

    /// Reads the words after the name.
    pub fn parse(words: &[&str]) -> Result<Self, DeclareError> {
        let mut conf = Self::default();
        let (servers, rest): (Vec<&str>, Vec<&str>) =
            words.iter().partition(|word| word.starts_with("server="));
        for word in servers {
            let addr = Self::server(&word["server=".len()..])?;
            if conf.servers.contains(&addr) {
                return Err(DeclareError::Twice(word.to_owned()));
            }
            conf.servers.push(addr);
        }
        each(&rest, |name, value| {
            if (name, value) == ("tls", None) {
                conf.tls = true;
                return Ok(true);
            }
            let Some(value) = value else { return Ok(false) };
            let text = || given(value);
            match name {
                "db" => conf.db = ranged(value, 0, 65_535)?,
                "user" => conf.user = Some(text()?),
                "password_file" => conf.password_file = Some(text()?),
                "timeout" => {
                    let (min, max) = (Millis(1), Millis(Self::MAX_TIMEOUT));
                    let time = millis(value)?;
                    if time < min || time > max {
                        return Err(FieldError::Span { min, max });
                    }
                    conf.timeout = time.0;
                }
                "keepalive" => conf.keepalive = ranged(value, 1, 1_024)?,
                "cache" => {
                    conf.cache = parse_size(value).map_err(FieldError::Time)?;
                    if conf.cache < Self::MIN_CACHE {
                        return Err(FieldError::CacheTooSmall);
                    }
                }
                "state" => conf.state = Some(text()?),
                "ca" => conf.ca = Some(text()?),
                "tls_name" => conf.tls_name = Some(text()?),
                "sentinel" => conf.sentinel = Some(text()?),
                // A prefix may be empty, where the store has nothing else.
                "tenant_prefix" => conf.tenant_prefix = value.to_owned(),
                "app_prefix" => conf.app_prefix = value.to_owned(),
                "epoch_key" => conf.epoch_key = Some(text()?),
                "tracking" => conf.tracking = flag(value)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if conf.servers.is_empty() {
            let error = FieldError::Empty;
            return Err(DeclareError::Value { word: "server=".to_owned(), error });
        }
        if let Some(word) = [("ca", &conf.ca), ("tls_name", &conf.tls_name)]
            .into_iter()
            .find_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)))
            && !conf.tls
        {
            return Err(DeclareError::Value { word, error: FieldError::NeedsTls });
        }
        // A master is told by its address, which certificates have no name for.
        if let (Some(master), true, None) = (&conf.sentinel, conf.tls, &conf.tls_name) {
            let word = format!("sentinel={master}");
            return Err(DeclareError::Value { word, error: FieldError::NeedsTlsName });
        }
        Ok(conf)
    }

    /// An address; the port is 6379 where absent.
    fn server(text: &str) -> Result<ServerAddr, DeclareError> {
        let bare = !text.starts_with("unix:")
            && match text.rsplit_once(']') {
                Some((_, rest)) => rest.is_empty(),
                None => !text.contains(':'),
            };
        let full = if bare { format!("{text}{}", Self::PORT) } else { text.to_owned() };
        ServerAddr::parse(&full)
            .map_err(|error| DeclareError::Addr { text: text.to_owned(), error })
    }
}

/// Whether a text can name a Redis.
pub fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
        && !matches!(text, "." | "..")
}

fn ranged(value: &str, min: u32, max: u32) -> Result<u32, FieldError> {
    let number = u32::try_from(number(value)).ok().filter(|n| (min..=max).contains(n));
    number.ok_or(FieldError::Between { min, max })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_of_a_path() {
        assert!(["routes", "a.b-c_1", &"r".repeat(64)].into_iter().all(is_name));
        let bad = ["", ".", "..", "a/b", "a b", "\u{e9}", &"r".repeat(65)];
        assert!(!bad.into_iter().any(is_name));
    }

    #[test]
    fn words_of_a_redis_are_read_over_its_defaults() {
        let conf = RedisConf::parse(&["server=127.0.0.1", "server=unix:/run/r.sock"]).unwrap();
        let addrs: Vec<String> = conf.servers.iter().map(ToString::to_string).collect();
        assert_eq!(addrs, ["127.0.0.1:6379", "unix:/run/r.sock"]);
        assert_eq!(RedisConf { servers: Vec::new(), ..conf }, RedisConf::default());
        let words = "server=[::1] server=r.example:7000 db=2 user=nginx password_file=/etc/p \
                     timeout=50ms keepalive=2 cache=1m state=/var/s tls ca=/etc/ca tls_name=r \
                     sentinel=mymaster tenant_prefix=t: app_prefix= epoch_key=epoch tracking=off";
        let words: Vec<&str> = words.split_whitespace().collect();
        let conf = RedisConf::parse(&words).unwrap();
        assert_eq!((conf.db, conf.timeout, conf.keepalive, conf.cache), (2, 50, 2, 1 << 20));
        assert_eq!((&*conf.tenant_prefix, &*conf.app_prefix), ("t:", ""));
        assert!(conf.tls && !conf.tracking && conf.sentinel.is_some());
        assert_eq!(conf.servers[0].to_string(), "[::1]:6379");
        for bad in [
            "server=",
            "server=a:b:c",
            "db=-1",
            "timeout=0",
            "timeout=2m",
            "keepalive=0",
            "cache=1k",
            "cache=x",
            "tls=on",
            "tracking=yes",
            "ca=/x",
            "user=",
            "port=1",
            "server=127.0.0.1",
        ] {
            assert!(RedisConf::parse(&["server=127.0.0.1", bad]).is_err(), "{bad}");
        }
        assert!(RedisConf::parse(&[]).is_err());
        let told = ["server=127.0.0.1", "sentinel=m", "tls"];
        assert!(RedisConf::parse(&told).is_err());
        assert!(RedisConf::parse(&[&told[..], &["tls_name=r"]].concat()).is_ok());
    }
}
