//! One probe of a peer: how it is asked, and what the answer means.

use std::rc::Rc;

use http_body_util::Full;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, TE, USER_AGENT};
use hyper::{HeaderMap, Method, Request, Uri, Version};
use peerage_core::check::answer::{Answer, Step};
use peerage_core::check::reason::Reason;
use peerage_core::check::verdict::Outcome;
use peerage_core::check::{Check, Kind, grpc};
use peerage_core::name::UpstreamName;
use peerage_core::texts::Texts;

#[cfg(ngx_feature = "http_ssl")]
use crate::ffi::tls::{Files, Handshake, Protocol};
use crate::net::Stream;
use crate::net::address::Address;
use crate::net::error::{Doing, Error};
use crate::net::http::{Body, Connection, Exchange, send_over};
use crate::net::time::Deadline;
#[cfg(ngx_feature = "http_ssl")]
use crate::net::trust;

/// A check, and what of it is the same for all peers of an upstream.
pub(crate) struct Question {
    pub(crate) check: Check,
    host: String,
    #[cfg(ngx_feature = "http_ssl")]
    name: String,
}

/// A peer, and how it is asked.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) question: Rc<Question>,
    address: Address,
}

/// What came of a probe.
pub(crate) struct Probed {
    /// An error says something of this process, nothing of the peer.
    pub(crate) outcome: Result<Outcome, Error>,
    /// For the next probe, where it is fit for one.
    pub(crate) connection: Option<Connection>,
}

impl Question {
    /// How the peers of an upstream are asked.
    pub(crate) fn new(check: Check, name: &UpstreamName, texts: &Texts) -> Self {
        let host = check.host.as_ref().or(texts.host.as_ref());
        let host = host.map_or(name.as_str(), String::as_str).to_owned();
        #[cfg(ngx_feature = "http_ssl")]
        let name = check.sni.as_ref().or(texts.tls_name.as_ref()).unwrap_or(&host).clone();
        Self {
            check,
            host,
            #[cfg(ngx_feature = "http_ssl")]
            name,
        }
    }

    fn request(&self) -> Result<Request<Body>, Error> {
        #[cfg(feature = "panic")]
        assert_ne!(self.check.uri, "/panic", "a test asks for it");
        let mut request = match self.check.kind {
            Kind::Grpc => self.call()?,
            _ => self.get()?,
        };
        request.headers_mut().insert(USER_AGENT, AGENT);
        Ok(request)
    }

    fn get(&self) -> Result<Request<Body>, Error> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = self.check.uri.parse().map_err(|_| unfit("uri", &self.check.uri))?;
        let host = HeaderValue::from_str(&self.host).map_err(|_| unfit("host", &self.host))?;
        request.headers_mut().insert(HOST, host);
        if !self.check.reuse {
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(request)
    }

    fn call(&self) -> Result<Request<Body>, Error> {
        let mut request = Request::new(Full::from(grpc::request(&self.check.uri)));
        let uri = Uri::builder().scheme("http").authority(self.host.as_str());
        let uri = uri.path_and_query(grpc::PATH).build().map_err(|_| unfit("host", &self.host))?;
        (*request.method_mut(), *request.version_mut()) = (Method::POST, Version::HTTP_2);
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(grpc::CONTENT_TYPE));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        Ok(request)
    }
}

/// What cannot be asked for: of our side.
fn unfit(field: &str, value: &str) -> Error {
    Error::Unfit(format!("{field} \"{value}\" cannot be sent"))
}

impl Target {
    /// `None` where it is no address.
    pub(crate) fn new(question: &Rc<Question>, sockaddr: &[u8]) -> Option<Self> {
        let address = Address::new(sockaddr)?;
        let address = match question.check.port {
            Some(port) => address.at_port(port),
            None => address,
        };
        Some(Self { question: Rc::clone(question), address })
    }

    fn check(&self) -> &Check {
        &self.question.check
    }

    /// Asks the peer, over the connection that was kept if there is one.
    pub(crate) async fn probe(&self, kept: Option<Connection>) -> Probed {
        let deadline = Deadline::after(self.check().timeout.0);
        match self.ask(kept, deadline).await {
            Ok((outcome, connection)) => Probed { outcome: Ok(outcome), connection },
            Err(error) => {
                let outcome = reason(&error).map(Err).ok_or(error);
                Probed { outcome, connection: None }
            }
        }
    }

    async fn ask(
        &self,
        kept: Option<Connection>,
        deadline: Deadline,
    ) -> Result<(Outcome, Option<Connection>), Error> {
        if self.check().kind == Kind::Tcp {
            self.stream(deadline).await?;
            return Ok((Ok(()), None));
        }
        let fresh = async {
            let stream = self.stream(deadline).await?;
            match self.check().kind {
                Kind::Grpc => Connection::http2(stream, HEAD).await,
                _ => Connection::http1(stream, HEAD).await,
            }
        };
        let exchange = send_over(kept, fresh, || self.question.request(), deadline).await?;
        match self.check().kind {
            Kind::Grpc => self.judge_call(exchange, deadline).await,
            _ => self.judge(exchange, deadline).await,
        }
    }

    async fn stream(&self, deadline: Deadline) -> Result<Stream, Error> {
        let stream = deadline.within(Doing::Connect, Stream::connect(&self.address)).await?;
        deadline.within(Doing::Handshake, self.shake(stream)).await
    }

    /// Has a stream speak TLS, if that is asked for.
    async fn shake(&self, stream: Stream) -> Result<Stream, Error> {
        if self.check().kind != Kind::Https {
            return Ok(stream);
        }
        #[cfg(ngx_feature = "http_ssl")]
        {
            let files = Files { ca: self.check().ca.clone(), certificate: None };
            let name = without_port(&self.question.name);
            let verify = self.check().verify.then_some(name);
            let handshake = Handshake { sni: Some(name), verify, protocol: Protocol::Any };
            trust::of(&files)?.shake(stream, handshake).await
        }
        #[cfg(not(ngx_feature = "http_ssl"))]
        Err(Error::Unfit("this nginx has no TLS".to_owned()))
    }

    /// The head decides, or the body, as far as it is asked for; what is left is read only for the
    /// connection's sake.
    async fn judge(
        &self,
        mut exchange: Exchange,
        deadline: Deadline,
    ) -> Result<(Outcome, Option<Connection>), Error> {
        let mut answer = Answer::new(self.check());
        let mut is_whole = false;
        let mut step = answer.head(exchange.status.as_u16());
        let outcome = loop {
            if let Step::Done(outcome) = step {
                break outcome;
            }
            match deadline.within(Doing::Exchange, exchange.data()).await? {
                Some(data) => step = answer.body(&data),
                None => {
                    is_whole = true;
                    break answer.end();
                }
            }
        };
        if outcome.is_err() || !self.check().reuse {
            return Ok((outcome, None));
        }
        let rest = deadline.within(Doing::Exchange, rest(exchange, is_whole)).await;
        Ok((outcome, rest.ok().flatten()))
    }

    async fn judge_call(
        &self,
        mut exchange: Exchange,
        deadline: Deadline,
    ) -> Result<(Outcome, Option<Connection>), Error> {
        let mut reply = grpc::Reply::default();
        let kind = text(&exchange.headers, &CONTENT_TYPE).unwrap_or_default();
        let status = text(&exchange.headers, &GRPC_STATUS);
        let mut step = reply.head(exchange.status.as_u16(), kind, status);
        let outcome = loop {
            if let Step::Done(outcome) = step {
                break outcome;
            }
            match deadline.within(Doing::Exchange, exchange.data()).await? {
                Some(data) => step = reply.body(&data),
                None => {
                    let trailers = exchange.trailers.as_ref();
                    break reply.end(trailers.and_then(|all| text(all, &GRPC_STATUS)));
                }
            }
        };
        if outcome.is_err() || !self.check().reuse {
            return Ok((outcome, None));
        }
        let rest = deadline.within(Doing::Exchange, rest(exchange, true)).await;
        Ok((outcome, rest.ok().flatten()))
    }
}

/// Reads a body to its end, if that is near, and gives the connection back.
async fn rest(mut exchange: Exchange, mut is_whole: bool) -> Result<Option<Connection>, Error> {
    let mut read = 0;
    while !is_whole {
        match exchange.data().await? {
            None => is_whole = true,
            Some(data) => read += data.len(),
        }
        if read > REST {
            return Ok(None);
        }
    }
    Ok(exchange.end().await)
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// A name of a certificate has no port, a `Host` may.
#[cfg(ngx_feature = "http_ssl")]
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) && !name.contains(':') => {
            name
        }
        _ => host,
    }
}

/// What an error says of the peer; `None`: nothing.
pub(super) fn reason(error: &Error) -> Option<Reason> {
    Some(match error {
        error if error.is_own() => return None,
        #[cfg(ngx_feature = "http_ssl")]
        Error::Certificate(_) => Reason::Certificate,
        Error::Timeout(Doing::Connect) => Reason::ConnectTimeout,
        Error::Timeout(_) => Reason::Timeout,
        Error::System(_, libc::ECONNREFUSED) => Reason::ConnectRefused,
        Error::System(Doing::Connect, libc::ETIMEDOUT) => Reason::ConnectTimeout,
        Error::System(Doing::Connect, _) => Reason::ConnectFailed,
        Error::System(..) => Reason::Reset,
        Error::Closed => Reason::Closed,
        Error::Tls(_) => Reason::Tls,
        _ => Reason::Protocol,
    })
}

const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("peerage/", env!("CARGO_PKG_VERSION"), " (health check)"));
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The longest head of an answer, in bytes.
const HEAD: usize = 16 << 10;
/// How much of a body is read for nothing but the connection's sake, in bytes.
const REST: usize = 64 << 10;
