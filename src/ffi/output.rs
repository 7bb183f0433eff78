//! The sliced writer under every answer.
//!
//! A producer is asked for text until 32 KB are there or 2 ms are over; the text goes to nginx's
//! output filters, and the next slice is made when the client has taken it, in a later turn of
//! the event loop. What fits into the first slice is sent with its length, the rest chunked.

use std::ptr;
use std::time::{Duration, Instant};

use nginx_sys::{
    NGX_AGAIN, NGX_ERROR, NGX_OK, ngx_add_timer, ngx_buf_t, ngx_chain_t, ngx_del_timer,
    ngx_handle_write_event, ngx_http_core_loc_conf_t, ngx_http_core_module, ngx_http_output_filter,
    ngx_http_request_t, ngx_http_send_header, ngx_int_t, ngx_list_push, ngx_pcalloc, ngx_pnalloc,
    ngx_str_t, ngx_table_elt_t, ngx_uint_t, off_t,
};
use peerage_core::api::error::Problem;

use super::bits;
use super::request::Request;

/// Whether a producer has more to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ask again.
    More,
    /// Nothing for now: what there is goes out. Ask again when the worker is woken, or after so
    /// many milliseconds.
    Wait(u64),
    /// That was all.
    End,
}

/// Makes an answer's text, a piece at a time; a piece is small against 32 KB and 1 ms.
pub(crate) trait Producer {
    /// Appends the next piece.
    fn fill(&mut self, out: &mut Vec<u8>) -> Step;

    /// Whether it goes on until the client goes away: an exiting worker cuts it off.
    fn is_endless(&self) -> bool {
        false
    }

    /// What went wrong, for who says it in other words.
    fn problem(&self) -> Option<&Problem> {
        None
    }
}

/// A text that is already there.
impl Producer for Vec<u8> {
    fn fill(&mut self, out: &mut Vec<u8>) -> Step {
        out.append(self);
        Step::End
    }
}

/// A whole answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    /// Further headers; an `ETag` is understood by nginx's `If-None-Match` on GET and HEAD.
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Box<dyn Producer>,
}

/// What the writer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing; the request is to be finalized with this.
    Done(ngx_int_t),
    /// The client is to take what it was given; nginx's write event tells.
    Blocked,
    /// Its next slice of time.
    Slice,
    /// Something to say: a wake-up, or so many milliseconds.
    Idle(u64),
}

/// An answer on its way. It owns the bytes that nginx's buffers point at, so it lives until the
/// request's pool is destroyed.
pub(super) struct Output {
    answer: Answer,
    data: Vec<u8>,
    buf: *mut ngx_buf_t,
    header_sent: bool,
}

impl Output {
    pub(super) fn new(answer: Answer) -> Self {
        Self { answer, data: Vec::new(), buf: ptr::null_mut(), header_sent: false }
    }

    /// Whether it goes on until the client goes away.
    pub(super) fn is_endless(&self) -> bool {
        self.answer.body.is_endless()
    }

    /// Makes and sends as much as one slice allows.
    pub(super) fn run(&mut self, r: Request<'_>) -> Progress {
        let raw = r.as_ptr();
        if !self.buf.is_null() {
            // SAFETY: a living request; a null chain means "what you hold".
            let rc = unsafe { ngx_http_output_filter(raw, ptr::null_mut()) };
            if rc == NGX_ERROR as ngx_int_t {
                return Progress::Done(rc);
            }
            if self.is_busy(raw) {
                return Progress::Blocked;
            }
        }
        let step = self.fill(r);
        if !self.header_sent {
            self.header_sent = true;
            if !self.set_header(r, step) {
                return Progress::Done(NGX_ERROR as ngx_int_t);
            }
            // SAFETY: a living request whose header has not been sent.
            let rc = unsafe { ngx_http_send_header(raw) };
            // SAFETY: a living request.
            let header_only = unsafe { bits::is_header_only(raw) };
            if rc == NGX_ERROR as ngx_int_t || rc > NGX_OK as ngx_int_t || header_only {
                return Progress::Done(rc);
            }
        }
        if let Step::Wait(ms) = step
            && self.data.is_empty()
            && !self.buf.is_null()
        {
            return Progress::Idle(ms);
        }
        let rc = self.send(r, step);
        if step == Step::End || rc == NGX_ERROR as ngx_int_t {
            return Progress::Done(rc);
        }
        if rc == NGX_AGAIN as ngx_int_t || self.is_busy(raw) {
            return Progress::Blocked;
        }
        match step {
            Step::Wait(ms) => Progress::Idle(ms),
            Step::More | Step::End => Progress::Slice,
        }
    }

    /// Fills `data` with the next slice. A subrequest's answer is made at once: nginx keeps its
    /// buffers until the main request has sent what comes before.
    fn fill(&mut self, r: Request<'_>) -> Step {
        self.data.clear();
        let begun = Instant::now();
        loop {
            let step = self.answer.body.fill(&mut self.data);
            match step {
                Step::End => return step,
                // Nobody would wake a subrequest: it ends with what there is.
                Step::Wait(_) if r.is_subrequest() => return Step::End,
                Step::Wait(_) => return step,
                Step::More => {}
            }
            let over = self.data.len() >= SLICE_BYTES || begun.elapsed() >= SLICE_TIME;
            if over && !r.is_subrequest() {
                return step;
            }
        }
    }

    /// Whether nginx still holds bytes of `data`.
    fn is_busy(&self, r: *mut ngx_http_request_t) -> bool {
        // SAFETY: `buf` is in the pool of `r`, which lives, as does its connection.
        unsafe {
            (*self.buf).pos < (*self.buf).last
                || bits::is_buffered(r)
                || (*(*r).connection).buffered() != 0
        }
    }

    /// Gives `data` to the output filters.
    fn send(&mut self, r: Request<'_>, step: Step) -> ngx_int_t {
        let raw = r.as_ptr();
        // SAFETY: the request's pool lives; ngx_pcalloc gives zeroed memory of that size or null.
        // `data` is neither moved nor changed before `is_busy` says no (or for ever after End).
        unsafe {
            if self.buf.is_null() {
                self.buf = ngx_pcalloc((*raw).pool, size_of::<ngx_buf_t>()).cast();
                if self.buf.is_null() {
                    return NGX_ERROR as ngx_int_t;
                }
            }
            let buf = &mut *self.buf;
            let range = self.data.as_mut_ptr_range();
            (buf.start, buf.pos) = (range.start, range.start);
            (buf.end, buf.last) = (range.end, range.end);
            // An empty buffer is one that only carries its flags.
            buf.set_temporary(u32::from(!self.data.is_empty()));
            buf.set_flush(u32::from(step != Step::End));
            buf.set_last_buf(u32::from(step == Step::End && !r.is_subrequest()));
            buf.set_last_in_chain(u32::from(step == Step::End));
            if self.data.is_empty() && r.is_subrequest() {
                buf.set_sync(1);
            }
            let mut link = ngx_chain_t { buf: self.buf, next: ptr::null_mut() };
            ngx_http_output_filter(raw, &raw mut link)
        }
    }

    fn set_header(&mut self, r: Request<'_>, step: Step) -> bool {
        let raw = r.as_ptr();
        // SAFETY: a living request whose header has not been sent; texts are 'static or copied
        // into its pool.
        unsafe {
            let out = &raw mut (*raw).headers_out;
            (*out).status = ngx_uint_t::from(self.answer.status);
            (*out).content_type = constant(self.answer.content_type);
            (*out).content_type_len = self.answer.content_type.len();
            (*out).content_type_lowcase = ptr::null_mut();
            (*out).content_length_n = match step {
                Step::End => self.data.len() as off_t,
                Step::More | Step::Wait(_) => -1,
            };
        }
        // An ETag answers GET's conditions. For a write they were decided before, on what was
        // there then.
        if !matches!(r.method(), b"GET" | b"HEAD") {
            // SAFETY: a living request.
            unsafe { bits::disable_not_modified(raw) };
        }
        self.answer.headers.iter().all(|(name, value)| add_header(r, name, value))
    }
}

/// Adds one header to the answer.
pub(super) fn add_header(r: Request<'_>, name: &'static str, value: &str) -> bool {
    debug_assert!(!value.bytes().any(|c| c < b' '));
    let raw = r.as_ptr();
    // SAFETY: a living request; the list is made by nginx with the request; the element is
    // zeroed first, since newer versions have a link in it; the value is copied into the pool.
    unsafe {
        let element = ngx_list_push(&raw mut (*raw).headers_out.headers).cast::<ngx_table_elt_t>();
        if element.is_null() {
            return false;
        }
        ptr::write_bytes(element, 0, 1);
        let copy = ngx_pnalloc((*raw).pool, value.len()).cast::<u8>();
        if copy.is_null() {
            return false;
        }
        ptr::copy_nonoverlapping(value.as_ptr(), copy, value.len());
        (*element).hash = 1;
        (*element).key = constant(name);
        (*element).value = ngx_str_t { len: value.len(), data: copy };
        if name == "ETag" {
            (*raw).headers_out.etag = element;
        }
    }
    true
}

/// Takes back what [`add_header`] was given this name for: the same text, not an equal one.
pub(super) fn drop_header(r: Request<'_>, name: &'static str) {
    // SAFETY: a living request; each part of its list has `nelts` elements, all of them written.
    unsafe {
        let mut part = &raw const (*r.as_ptr()).headers_out.headers.part;
        while !part.is_null() {
            let elements = (*part).elts.cast::<ngx_table_elt_t>();
            for i in 0..(*part).nelts {
                let element = elements.add(i);
                if ptr::eq((*element).key.data, name.as_ptr()) {
                    (*element).hash = 0;
                }
            }
            part = (*part).next;
        }
    }
}

/// Arms the write event as ngx_http_set_write_handler does; false: the connection is broken.
pub(super) fn await_write(r: Request<'_>) -> bool {
    let raw = r.as_ptr();
    // SAFETY: a living request has its connection, events and core configuration.
    unsafe {
        let wev = (*(*raw).connection).write;
        if (*wev).ready() != 0 && (*wev).delayed() != 0 {
            return true;
        }
        guard_write(r);
        let clcf = core_conf(raw);
        ngx_handle_write_event(wev, (*clcf).send_lowat) == NGX_OK as ngx_int_t
    }
}

/// Arms `send_timeout`, which also holds an exiting worker until the answer is out.
pub(super) fn guard_write(r: Request<'_>) {
    let raw = r.as_ptr();
    // SAFETY: as in `await_write`.
    unsafe {
        let wev = (*(*raw).connection).write;
        if (*wev).delayed() == 0 {
            ngx_add_timer(wev, (*core_conf(raw)).send_timeout);
        }
    }
}

/// Takes `send_timeout` back: everything is out, and nothing more is to be said for now.
pub(super) fn calm_write(r: Request<'_>) {
    // SAFETY: a living request has its connection and events.
    unsafe {
        let wev = (*(*r.as_ptr()).connection).write;
        if (*wev).delayed() == 0 && (*wev).timer_set() != 0 {
            ngx_del_timer(wev);
        }
    }
}

/// The core module's configuration of the request's location.
///
/// # Safety
///
/// - `r` is a living request
unsafe fn core_conf(r: *mut ngx_http_request_t) -> *const ngx_http_core_loc_conf_t {
    // SAFETY: `loc_conf` holds one entry a module; the core module's has this type.
    unsafe { (*(*r).loc_conf.add(ngx_http_core_module.ctx_index)).cast() }
}

/// A constant text as nginx's string; nginx does not write into headers it sends.
fn constant(text: &'static str) -> ngx_str_t {
    ngx_str_t { len: text.len(), data: text.as_ptr().cast_mut() }
}

const SLICE_BYTES: usize = 32 * 1024;
const SLICE_TIME: Duration = Duration::from_millis(2);
