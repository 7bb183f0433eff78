//! An upstream{} of the configuration, as nginx's upstream module keeps it.

use std::marker::PhantomData;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr::{self, NonNull};

use nginx_sys::{
    NGX_HTTP_UPSTREAM_BACKUP, NGX_HTTP_UPSTREAM_CREATE, NGX_HTTP_UPSTREAM_DOWN,
    NGX_HTTP_UPSTREAM_FAIL_TIMEOUT, NGX_HTTP_UPSTREAM_MAX_CONNS, NGX_HTTP_UPSTREAM_MAX_FAILS,
    NGX_HTTP_UPSTREAM_WEIGHT, ngx_addr_t, ngx_array_push, ngx_conf_t,
    ngx_http_upstream_init_round_robin, ngx_http_upstream_server_t, ngx_http_upstream_srv_conf_t,
    ngx_int_t, ngx_pcalloc, ngx_str_t, ngx_uint_t, sockaddr, sockaddr_in,
};

use super::conf::{self, Conf, ERROR, OK, Refused};
use super::peer;
use crate::conf::Srv;

/// The name of the entry that stands in for servers which nginx does not know.
const PLACEHOLDER: ngx_str_t = conf::string(c"peerage");

#[derive(Clone, Copy)]
pub(crate) struct Upstream<'a> {
    us: NonNull<ngx_http_upstream_srv_conf_t>,
    life: PhantomData<&'a ()>,
}

/// A plain `server` line.
pub(crate) struct Line {
    /// The address as written.
    pub(crate) name: String,
    /// What nginx made of it: one for a literal address, any number for a host name.
    pub(crate) addrs: Vec<Address>,
    pub(crate) weight: usize,
    pub(crate) max_conns: usize,
    pub(crate) max_fails: usize,
    pub(crate) fail_timeout: u64,
    pub(crate) down: bool,
    pub(crate) drain: bool,
    pub(crate) backup: bool,
    /// Empty where none is given.
    pub(crate) route: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Inet(SocketAddr),
    Unix(String),
}

impl<'a> Upstream<'a> {
    /// Takes an upstream from nginx.
    ///
    /// # Safety
    ///
    /// - `us` is not null and lives during `'a`; nobody else changes it meanwhile
    pub(super) unsafe fn from_raw(us: *mut ngx_http_upstream_srv_conf_t) -> Self {
        debug_assert!(!us.is_null());
        // SAFETY: not null, the caller says so.
        Self { us: unsafe { NonNull::new_unchecked(us) }, life: PhantomData }
    }

    fn as_ref(&self) -> &'a ngx_http_upstream_srv_conf_t {
        // SAFETY: lives during 'a.
        unsafe { self.us.as_ref() }
    }

    /// The block's name.
    pub(crate) fn name(self) -> String {
        String::from_utf8_lossy(self.as_ref().host.as_bytes()).into_owned()
    }

    /// Whether another directive has said how to balance, or wraps what does.
    pub(crate) fn has_method(self) -> bool {
        self.as_ref().peer.init_upstream.is_some()
    }

    /// Whether another directive has put its hook around ours.
    fn is_wrapped(self) -> bool {
        let ours: unsafe extern "C" fn(_, _) -> _ = init_upstream;
        self.as_ref().peer.init_upstream.is_some_and(|hook| !ptr::fn_addr_eq(hook, ours))
    }

    /// Whether nginx's own `zone` stands in the block.
    pub(crate) fn has_zone(self) -> bool {
        #[cfg(ngx_feature = "http_upstream_zone")]
        {
            !self.as_ref().shm_zone.is_null()
        }
        #[cfg(not(ngx_feature = "http_upstream_zone"))]
        false
    }

    /// Takes the block over: the parameters of `server` lines, the hook that nginx calls once the
    /// block is read, and an entry that never gets a request, since nginx refuses a block without.
    pub(crate) fn take_over(self, cf: &Conf<'_>) -> Result<(), Refused> {
        // SAFETY: nginx reads the block now, on this thread; `servers` is an array of its server
        // type; the address lives in the configuration's pool.
        unsafe {
            let us = self.us.as_ptr();
            let pool = (*cf.as_ptr()).pool;
            (*us).flags |= (NGX_HTTP_UPSTREAM_CREATE
                | NGX_HTTP_UPSTREAM_WEIGHT
                | NGX_HTTP_UPSTREAM_MAX_CONNS
                | NGX_HTTP_UPSTREAM_MAX_FAILS
                | NGX_HTTP_UPSTREAM_FAIL_TIMEOUT
                | NGX_HTTP_UPSTREAM_DOWN
                | NGX_HTTP_UPSTREAM_BACKUP) as ngx_uint_t;
            (*us).peer.init_upstream = Some(init_upstream);

            let address = ngx_pcalloc(pool, size_of::<sockaddr_in>()).cast::<sockaddr_in>();
            let addr = ngx_pcalloc(pool, size_of::<ngx_addr_t>()).cast::<ngx_addr_t>();
            let server = ngx_array_push((*us).servers).cast::<ngx_http_upstream_server_t>();
            if address.is_null() || addr.is_null() || server.is_null() {
                return Err(Refused(None));
            }
            (*address).sin_family = libc::AF_INET as _;
            (*address).sin_port = 1_u16.to_be();
            (*address).sin_addr.s_addr = u32::from(Ipv4Addr::LOCALHOST).to_be();
            (*addr).sockaddr = address.cast::<sockaddr>();
            (*addr).socklen = size_of::<sockaddr_in>() as _;
            (*addr).name = PLACEHOLDER;
            ptr::write_bytes(server, 0, 1);
            (*server).name = PLACEHOLDER;
            (*server).addrs = addr;
            (*server).naddrs = 1;
            (*server).weight = 1;
            (*server).down = 1;
        }
        Ok(())
    }

    /// The `server` lines of the block; takes the placeholder out of nginx's list when there are
    /// any, so that what reads that list sees them alone.
    fn lines(self) -> Vec<Line> {
        // SAFETY: the block has been read; `servers` is an array of nginx's server type, whose
        // addresses live in the configuration's pool.
        unsafe {
            let Some(array) = (*self.us.as_ptr()).servers.as_mut() else { return Vec::new() };
            let all = array.as_slice_mut::<ngx_http_upstream_server_t>();
            let Some(at) = all.iter().position(|s| s.name.data == PLACEHOLDER.data) else {
                return Vec::new();
            };
            // nginx counts servers that are no backup; without one it refuses the block.
            if all.iter().any(|s| s.backup() == 0 && s.name.data != PLACEHOLDER.data) {
                all.copy_within(at + 1.., at);
                array.nelts -= 1;
            }
            let all = array.as_slice::<ngx_http_upstream_server_t>();
            all.iter().filter(|s| s.name.data != PLACEHOLDER.data).map(|s| line(s)).collect()
        }
    }
}

/// Reads one of nginx's servers.
///
/// # Safety
///
/// - `server` has been filled by nginx's `server` directive
unsafe fn line(server: &ngx_http_upstream_server_t) -> Line {
    // SAFETY: nginx filled `addrs` with `naddrs` addresses.
    let addrs = unsafe {
        if server.naddrs == 0 {
            &[][..]
        } else {
            std::slice::from_raw_parts(server.addrs, server.naddrs)
        }
    };
    Line {
        name: String::from_utf8_lossy(server.name.as_bytes()).into_owned(),
        // SAFETY: nginx's addresses are sockets' addresses of their family's size.
        addrs: addrs.iter().filter_map(|a| unsafe { address(a) }).collect(),
        weight: server.weight,
        max_conns: server.max_conns,
        max_fails: server.max_fails,
        fail_timeout: u64::try_from(server.fail_timeout).unwrap_or(0),
        down: server.down != 0 && !is_draining(server),
        drain: is_draining(server),
        backup: server.backup() != 0,
        #[cfg(nginx_sid)]
        route: String::from_utf8_lossy(server.sid.as_bytes()).into_owned(),
        #[cfg(not(nginx_sid))]
        route: String::new(),
    }
}

/// Whether a `server` line says `drain`.
fn is_draining(server: &ngx_http_upstream_server_t) -> bool {
    #[cfg(nginx_sid)]
    return server.down == nginx_sys::NGX_HTTP_UPSTREAM_DRAINING as ngx_uint_t;
    #[cfg(not(nginx_sid))]
    {
        let _ = server;
        false
    }
}

/// Reads a socket's address.
///
/// # Safety
///
/// - `addr.sockaddr` is an address of its family, of `socklen` bytes
unsafe fn address(addr: &ngx_addr_t) -> Option<Address> {
    // SAFETY: the caller says so; each family's struct is read after its family was seen.
    unsafe {
        match i32::from((*addr.sockaddr).sa_family) {
            libc::AF_INET => {
                let a = &*addr.sockaddr.cast::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr));
                Some(Address::Inet(SocketAddrV4::new(ip, u16::from_be(a.sin_port)).into()))
            }
            libc::AF_INET6 => {
                let a = &*addr.sockaddr.cast::<libc::sockaddr_in6>();
                let ip = Ipv6Addr::from(a.sin6_addr.s6_addr);
                let port = u16::from_be(a.sin6_port);
                Some(Address::Inet(SocketAddrV6::new(ip, port, 0, a.sin6_scope_id).into()))
            }
            libc::AF_UNIX => {
                let a = &*addr.sockaddr.cast::<libc::sockaddr_un>();
                let path: Vec<u8> =
                    a.sun_path.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
                Some(Address::Unix(String::from_utf8_lossy(&path).into_owned()))
            }
            _ => None,
        }
    }
}

callback! {
    /// nginx, or a directive that wraps us, calls it once for each block, when http{} is read.
    fn init_upstream(cf: *mut ngx_conf_t, us: *mut ngx_http_upstream_srv_conf_t) -> ngx_int_t,
    or ERROR;
    {
        // SAFETY: nginx calls with the configuration it has read and with the block that
        // `take_over` put this hook into; its `srv_conf` holds an entry a module.
        let (cf, upstream, srv) = unsafe {
            (Conf::from_raw(cf), Upstream::from_raw(us), conf::own::<Srv>((*us).srv_conf))
        };
        let lines = upstream.lines();
        if let Some(block) = srv.block() {
            block.wrapped.set(upstream.is_wrapped());
        }
        if crate::conf::finish_block(&cf, upstream, srv, lines).is_err() {
            return ERROR;
        }
        // A valid list for whoever reads `peer.data` as round robin's.
        // SAFETY: the same arguments as nginx's own call.
        if unsafe { ngx_http_upstream_init_round_robin(cf.as_ptr(), us) } != OK {
            return ERROR;
        }
        // SAFETY: nginx sets the block up on this thread, and reads it later.
        unsafe { (*us).peer.init = Some(peer::init) };
        OK
    }
}
