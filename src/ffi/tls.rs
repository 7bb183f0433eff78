//! TLS over our own connections, by nginx's OpenSSL.
//!
//! A [`Trust`] is made once for what is trusted and shown, and used for any number of connections.
//! The chain is verified during the handshake, and its result looked at afterwards, before anything
//! is sent: so the reason can be told in full.

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_int, c_long};
use std::future::poll_fn;
use std::mem;
use std::net::IpAddr;
use std::ptr;
use std::rc::Rc;
use std::task::Poll;

use nginx_sys::{
    ERR_clear_error, ERR_peek_error, ERR_reason_error_string, NGX_SSL_CLIENT, NGX_SSL_TLSv1_2,
    NGX_SSL_TLSv1_3, SSL_CTRL_MODE, SSL_CTRL_SET_TLSEXT_HOSTNAME, SSL_CTX_check_private_key,
    SSL_CTX_ctrl, SSL_CTX_free, SSL_CTX_load_verify_locations, SSL_CTX_set_default_verify_paths,
    SSL_CTX_set_verify, SSL_CTX_use_PrivateKey_file, SSL_CTX_use_certificate_chain_file,
    SSL_FILETYPE_PEM, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, SSL_MODE_ENABLE_PARTIAL_WRITE,
    SSL_VERIFY_NONE, SSL_ctrl, SSL_get_verify_result, SSL_get0_alpn_selected, SSL_set_alpn_protos,
    X509_V_OK, X509_verify_cert_error_string, ngx_connection_t, ngx_create_pool, ngx_cycle,
    ngx_ssl_check_host, ngx_ssl_create, ngx_ssl_create_connection, ngx_ssl_handshake,
    ngx_ssl_shutdown, ngx_ssl_t, ngx_str_t, ngx_uint_t,
};

use super::bits;
use super::conf::OK;
use super::stream::{self, AGAIN, Side, Stream};
use crate::net::error::{Doing, Error};

/// Whom to trust, and what to show; what files are named is read once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Files {
    /// Certificates of authorities; without, those that OpenSSL finds by itself.
    pub(crate) ca: Option<String>,
    /// Our own certificate, with those between it and its authority, and its key.
    pub(crate) certificate: Option<(String, String)>,
}

/// An SSL context for connections to servers; those that use it keep it.
#[derive(Clone)]
pub(crate) struct Trust(Rc<Context>);

/// nginx's own part of a context. In a newer nginx the context points back to it, so it stays where
/// it is as long as any connection has the context.
pub(super) struct Context(UnsafeCell<ngx_ssl_t>);

/// What is asked for in a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handshake<'a> {
    /// The name asked for by SNI; nothing where it is an address.
    pub(crate) sni: Option<&'a str>,
    /// The name that a valid certificate has to be for; without, nobody looks at it. nginx looks
    /// among the certificate's names of hosts only, not among its addresses.
    pub(crate) verify: Option<&'a str>,
    /// What is to be spoken.
    pub(crate) protocol: Protocol,
}

/// A protocol by its name in ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Nothing is asked for.
    Any,
    Http2,
}

impl Trust {
    /// Reads the files.
    pub(crate) fn new(files: &Files) -> Result<Self, Error> {
        // SAFETY: a C struct of integers and pointers, for which zero is a value.
        let context = Rc::new(Context(UnsafeCell::new(unsafe { mem::zeroed() })));
        let ssl = context.0.get();
        // SAFETY: nginx fills what lies in the Rc, whose Drop frees the context, also where only
        // half of it was made. The log is the running cycle's.
        let ctx = unsafe {
            (*ssl).log = (*ngx_cycle).log;
            let protocols = (NGX_SSL_TLSv1_2 | NGX_SSL_TLSv1_3) as ngx_uint_t;
            if ngx_ssl_create(ssl, protocols, ptr::null_mut()) != OK {
                return Err(Error::File("no SSL context".to_owned()));
            }
            (*ssl).ctx
        };
        // What is not taken at once is offered again as hyper has it then, perhaps elsewhere.
        let mode = SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_ENABLE_PARTIAL_WRITE;
        // SAFETY: our context, and texts that live during the calls.
        unsafe {
            SSL_CTX_ctrl(ctx, SSL_CTRL_MODE as c_int, c_long::from(mode), ptr::null_mut());
            SSL_CTX_set_verify(ctx, SSL_VERIFY_NONE as c_int, None);
            match &files.ca {
                Some(ca) => {
                    let file = text(ca)?;
                    let read = SSL_CTX_load_verify_locations(ctx, file.as_ptr(), ptr::null());
                    check(read, ca)?;
                }
                None => {
                    // Where there are none, nobody is trusted.
                    SSL_CTX_set_default_verify_paths(ctx);
                    ERR_clear_error();
                }
            }
            if let Some((certificate, key)) = &files.certificate {
                let pem = SSL_FILETYPE_PEM as c_int;
                let file = text(certificate)?;
                check(SSL_CTX_use_certificate_chain_file(ctx, file.as_ptr()), certificate)?;
                let file = text(key)?;
                check(SSL_CTX_use_PrivateKey_file(ctx, file.as_ptr(), pem), key)?;
                check(SSL_CTX_check_private_key(ctx), key)?;
            }
        }
        Ok(Self(context))
    }

    /// Makes a connection speak TLS. An error ends it.
    pub(crate) async fn shake(
        &self,
        stream: Stream,
        handshake: Handshake<'_>,
    ) -> Result<Stream, Error> {
        self.begin(&stream, handshake)?;
        poll_fn(|cx| {
            let c = stream.0.usable()?;
            // SAFETY: our connection, which `begin` has given its SSL connection.
            let code = unsafe {
                let code = ngx_ssl_handshake(c);
                stream::listen(c);
                code
            };
            match code {
                OK => Poll::Ready(Ok(())),
                AGAIN => stream.0.park(Side::Reader, cx),
                _ => Poll::Ready(Err(stream.0.failed(Doing::Handshake))),
            }
        })
        .await?;
        end_of_handshake(&stream, handshake).map_err(|error| stream.0.keep(error))?;
        Ok(stream)
    }

    fn begin(&self, stream: &Stream, handshake: Handshake<'_>) -> Result<(), Error> {
        let c = stream.0.usable()?;
        let broken = || Error::Tls("no SSL connection".to_owned());
        // SAFETY: our connection, whose pool is destroyed after it, and which keeps the context;
        // OpenSSL copies name and protocols.
        unsafe {
            if (*c).pool.is_null() {
                (*c).pool = ngx_create_pool(POOL, (*c).log);
            }
            if (*c).pool.is_null() {
                return Err(broken());
            }
            stream.0.keep_trust(Rc::clone(&self.0));
            let flags = NGX_SSL_CLIENT as ngx_uint_t;
            if ngx_ssl_create_connection(self.0.0.get(), c, flags) != OK {
                return Err(stream.0.failed(Doing::Handshake));
            }
            let connection = (*(*c).ssl).connection;
            // An address is not a name (RFC 6066).
            if let Some(name) = handshake.sni.filter(|name| name.parse::<IpAddr>().is_err()) {
                let name = text(name)?;
                let (command, at) = (SSL_CTRL_SET_TLSEXT_HOSTNAME as c_int, name.as_ptr());
                if SSL_ctrl(connection, command, 0, at.cast_mut().cast()) == 0 {
                    ERR_clear_error();
                    return Err(broken());
                }
            }
            if handshake.protocol == Protocol::Http2
                && SSL_set_alpn_protos(connection, HTTP2.as_ptr(), HTTP2.len() as _) != 0
            {
                return Err(broken());
            }
        }
        Ok(())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: our own reference, null where nginx has made none; no connection has another one,
        // since each keeps this.
        unsafe { SSL_CTX_free(self.0.get_mut().ctx) };
    }
}

/// What a handshake has brought.
fn end_of_handshake(stream: &Stream, handshake: Handshake<'_>) -> Result<(), Error> {
    let c = stream.0.usable()?;
    // SAFETY: our connection with its SSL connection; the name lives during the call; what OpenSSL
    // has selected is a part of the SSL connection.
    unsafe {
        let connection = (*(*c).ssl).connection;
        if let Some(name) = handshake.verify {
            let result = SSL_get_verify_result(connection);
            if result != c_long::from(X509_V_OK) {
                let why = CStr::from_ptr(X509_verify_cert_error_string(result));
                return Err(Error::Certificate(why.to_string_lossy().into_owned()));
            }
            let mut text = ngx_str_t { len: name.len(), data: name.as_ptr().cast_mut() };
            if ngx_ssl_check_host(c, &raw mut text) != OK {
                return Err(Error::Certificate(format!("the certificate is not for \"{name}\"")));
            }
        }
        if handshake.protocol == Protocol::Http2 {
            let (mut at, mut len) = (ptr::null(), 0);
            SSL_get0_alpn_selected(connection, &raw mut at, &raw mut len);
            let chosen = (!at.is_null()).then(|| std::slice::from_raw_parts(at, len as usize));
            if chosen != Some(b"h2") {
                return Err(Error::Tls("the server does not choose h2".to_owned()));
            }
        }
    }
    Ok(())
}

/// Ends TLS on a connection that is about to be closed: says so, as far as that does not block.
///
/// # Safety
///
/// - `c` is an open connection of ours, which nobody uses any more
pub(super) unsafe fn end(c: *mut ngx_connection_t) {
    // SAFETY: the caller's connection. nginx frees the SSL connection unless it has to wait; told
    // that the connection is in error, it does not wait.
    unsafe {
        if !(*c).ssl.is_null() {
            bits::no_wait_shutdown(c);
            if ngx_ssl_shutdown(c) == AGAIN && !(*c).ssl.is_null() {
                (*c).set_error(1);
                ngx_ssl_shutdown(c);
            }
        }
    }
}

fn text(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::File("a text with a NUL".to_owned()))
}

/// Turns an answer of OpenSSL about a file into an error with its reason.
fn check(answer: c_int, file: &str) -> Result<(), Error> {
    if answer == 1 {
        return Ok(());
    }
    // SAFETY: OpenSSL's texts are static; null where it has none.
    let why = unsafe {
        let why = ERR_reason_error_string(ERR_peek_error());
        ERR_clear_error();
        if why.is_null() { c"it cannot be used" } else { CStr::from_ptr(why) }
    };
    Err(Error::File(format!("\"{file}\": {}", why.to_string_lossy())))
}

/// In the form of ALPN.
const HTTP2: &[u8] = b"\x02h2";
/// Bytes of a connection's pool; it holds nginx's part of the SSL connection.
const POOL: usize = 512;
