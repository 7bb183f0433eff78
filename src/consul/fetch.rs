//! One read of a Consul.

use http_body_util::Full;
use hyper::header::{HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::{HeaderMap, Request};
use peerage_core::consul::MAX_BODY;
use peerage_core::consul::query::Query;
use peerage_core::consul::settings::Endpoint;

use crate::conf::Consul;
#[cfg(ngx_feature = "http_ssl")]
use crate::ffi::tls::{Handshake, Protocol};
use crate::net::Stream;
use crate::net::error::{Doing, Error};
use crate::net::http::{Body, Connection, send_over};
use crate::net::time::Deadline;

/// The connection of a watch, which is kept from read to read.
#[derive(Default)]
pub(super) struct Wire(Option<(usize, Connection)>);

/// An answer.
pub(super) struct Got {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    /// As much of it as counts, and a byte more where there is more.
    pub(super) body: Vec<u8>,
}

impl Got {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Wire {
    /// Reads at one of the Consul's addresses, by its place.
    pub(super) async fn read(
        &mut self,
        consul: &Consul,
        at: usize,
        query: &Query,
    ) -> Result<Got, Error> {
        let deadline = Deadline::after(query.deadline);
        let kept = self.0.take().filter(|(of, _)| *of == at).map(|(_, line)| line);
        let request = || request(&endpoint(consul, at).host(), query);
        let mut exchange = send_over(kept, connect(consul, at), request, deadline).await?;
        let (status, headers) = (exchange.status.as_u16(), std::mem::take(&mut exchange.headers));
        let mut body = Vec::new();
        loop {
            match deadline.within(Doing::Exchange, exchange.data()).await? {
                Some(data) => body.extend_from_slice(&data),
                None => break,
            }
            if body.len() > MAX_BODY {
                body.truncate(MAX_BODY + 1);
                return Ok(Got { status, headers, body });
            }
        }
        self.0 = exchange.end().await.map(|line| (at, line));
        Ok(Got { status, headers, body })
    }
}

fn endpoint(consul: &Consul, at: usize) -> &Endpoint {
    &consul.settings.servers[consul.addresses[at].0]
}

async fn connect(consul: &Consul, at: usize) -> Result<Connection, Error> {
    let deadline = Deadline::after(CONNECT_MS);
    let address = &consul.addresses[at].1;
    let stream = deadline.within(Doing::Connect, Stream::connect(address)).await?;
    #[cfg(ngx_feature = "http_ssl")]
    let stream = match &consul.trust {
        Some(trust) if endpoint(consul, at).tls => {
            let host = endpoint(consul, at).host();
            let host = host.rsplit_once(':').map_or(&*host, |(host, _)| host);
            let name = consul.settings.tls_name.as_deref().unwrap_or(host);
            let (sni, verify) = (Some(name), Some(name));
            let handshake = Handshake { sni, verify, protocol: Protocol::Any };
            deadline.within(Doing::Handshake, trust.shake(stream, handshake)).await?
        }
        _ => stream,
    };
    Connection::http1(stream, HEAD).await
}

fn request(host: &str, query: &Query) -> Result<Request<Body>, Error> {
    let unfit = || Error::Unfit("the query cannot be sent".to_owned());
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| unfit());
    let mut request = Request::new(Full::default());
    *request.uri_mut() = query.target.parse().map_err(|_| unfit())?;
    let headers = request.headers_mut();
    headers.insert(HOST, value(host)?);
    headers.insert(USER_AGENT, AGENT);
    for (name, text) in &query.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unfit())?;
        headers.insert(name, value(text)?);
    }
    Ok(request)
}

const AGENT: HeaderValue = HeaderValue::from_static(concat!("peerage/", env!("CARGO_PKG_VERSION")));
/// The longest head of an answer, in bytes.
const HEAD: usize = 32 << 10;
/// How long connecting may take, with TLS.
const CONNECT_MS: u64 = 5_000;
