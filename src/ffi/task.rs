//! Drives one request from its body over waiting to its answer.
//!
//! A [`Task`] is asked for its turn when the body is there, when its time has come, and when the
//! worker is woken; it says how long it wants to wait or what to answer. All that belongs to it
//! hangs on the request's pool: a client that goes away takes everything with it.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr;
use std::rc::{Rc, Weak};

use nginx_sys::{
    NGX_DONE, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_REQUEST_TIME_OUT, NGX_OK,
    ngx_handle_read_event, ngx_handle_write_event, ngx_http_discard_request_body,
    ngx_http_finalize_request, ngx_http_log_ctx_t, ngx_http_read_client_request_body,
    ngx_http_request_empty_handler, ngx_http_request_t, ngx_http_run_posted_requests,
    ngx_http_test_reading, ngx_int_t, ngx_pool_cleanup_add,
};

use super::bits;
use super::body::{self, BodyError};
use super::fence;
use super::global::Global;
use super::output::{self, Answer, Output, Progress};
use super::request::Request;
use super::timer::{Kind, Timer};

/// What a task wants next.
pub(crate) enum Turn {
    /// Another turn after so many milliseconds, at least one, or earlier when the worker is woken.
    Wait(u64),
    /// The end.
    Answer(Answer),
}

/// The work behind one request.
pub(crate) trait Task {
    /// Goes on as far as it can without waiting.
    fn turn(&mut self, r: Request<'_>) -> Turn;
}

/// What is to happen to the request's body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    /// It is thrown away, so that the connection stays in step.
    Discard,
    /// It is read whole, up to so many bytes.
    Read(usize),
    /// nginx reads it whole, and the task takes it in pieces: [`super::body::piece`].
    Keep,
}

/// Makes the task when the body is there.
type Start = Box<dyn FnOnce(Request<'_>, Result<Vec<u8>, BodyError>) -> Box<dyn Task>>;

enum Phase {
    Body(Start, Option<usize>),
    Task(Box<dyn Task>),
    Output(Output),
    /// An answer that has nothing to say for now.
    Listening(Output),
    /// It is having its turn, or is over.
    Idle,
    /// Over; the answer's bytes are kept for nginx's own writer.
    Over {
        _kept: Option<Output>,
    },
}

struct Inner {
    /// Null when the request is gone.
    r: Cell<*mut ngx_http_request_t>,
    phase: RefCell<Phase>,
    timer: RefCell<Option<Timer>>,
    note: RefCell<Option<String>>,
}

/// Begins a task as a content handler; the value is what the handler returns to nginx.
pub(crate) fn run(
    r: Request<'_>,
    body: Body,
    start: impl FnOnce(Request<'_>, Result<Vec<u8>, BodyError>) -> Box<dyn Task> + 'static,
) -> ngx_int_t {
    let raw = r.as_ptr();
    let limit = match body {
        Body::Discard | Body::Keep => None,
        Body::Read(limit) => Some(limit),
    };
    let Some(inner) = attach(r, Phase::Body(Box::new(start), limit)) else {
        return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
    };
    match body {
        Body::Discard => {
            // SAFETY: a living request in its content phase.
            let rc = unsafe { ngx_http_discard_request_body(raw) };
            if rc != NGX_OK as ngx_int_t {
                return rc;
            }
            add_reference(r);
            inner.begin(r);
        }
        Body::Read(_) | Body::Keep => {
            // SAFETY: as above; it adds its own reference, and takes it back where it fails.
            let rc = unsafe { ngx_http_read_client_request_body(raw, Some(body_is_there)) };
            if rc >= SPECIAL_RESPONSE {
                return rc;
            }
        }
    }
    NGX_DONE as ngx_int_t
}

/// Keeps a text with the request, for its log line.
pub(crate) fn note(r: Request<'_>, text: String) {
    if let Some(inner) = find(r) {
        inner.note.replace(Some(text));
    }
}

/// The text that was kept.
pub(crate) fn noted(r: Request<'_>) -> Option<String> {
    find(r)?.note.borrow().clone()
}

/// Gives every waiting task a turn, and every listening one.
pub(crate) fn wake_all() {
    for inner in waiting() {
        if matches!(*inner.phase.borrow(), Phase::Task(_) | Phase::Listening(_)) {
            inner.event();
        }
    }
}

/// The worker is to exit: whoever waits has a turn, and endless answers that their clients do not
/// take are cut off.
pub(crate) fn exiting() {
    wake_all();
    for inner in waiting() {
        let cut = match &*inner.phase.borrow() {
            Phase::Output(output) => output.is_endless(),
            _ => false,
        };
        if cut {
            inner.cut();
        }
    }
}

fn waiting() -> Vec<Rc<Inner>> {
    WAITING.get().borrow().iter().filter_map(Weak::upgrade).collect()
}

impl Inner {
    /// The body is there.
    fn begin(self: &Rc<Self>, r: Request<'_>) {
        let Phase::Body(start, limit) = self.phase.replace(Phase::Idle) else { return };
        let body = || limit.map_or_else(|| Ok(Vec::new()), |limit| body::collect(r, limit));
        let task = fence::guard("request", None, || Some(start(r, body())));
        match task {
            Some(task) => {
                self.phase.replace(Phase::Task(task));
                self.step(r);
            }
            None => self.finalize(r, NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t),
        }
    }

    /// A timer or a wake-up: a step.
    fn event(self: &Rc<Self>) {
        self.as_event(|r| self.step(r));
    }

    /// Ends the request as if its client had gone.
    fn cut(self: &Rc<Self>) {
        self.as_event(|r| self.finalize(r, ERROR));
    }

    /// What nginx does around an event of a request.
    fn as_event(&self, act: impl FnOnce(Request<'_>)) {
        let raw = self.r.get();
        if raw.is_null() {
            return;
        }
        // SAFETY: not null: the pool's cleanup has not run, so the request lives.
        let (r, connection) = unsafe { (Request::from_raw(raw), (*raw).connection) };
        // SAFETY: the log of an http connection has the http log context, as
        // ngx_http_set_log_request relies on.
        unsafe {
            let context = (*(*connection).log).data.cast::<ngx_http_log_ctx_t>();
            (*context).current_request = raw;
        }
        act(r);
        // SAFETY: nginx keeps a connection's memory; the call itself looks whether it was closed.
        unsafe { ngx_http_run_posted_requests(connection) };
    }

    /// One turn of whatever phase it is in; the request may be gone afterwards.
    fn step(self: &Rc<Self>, r: Request<'_>) {
        if let Some(timer) = self.timer.borrow().as_ref() {
            timer.clear();
        }
        match self.phase.replace(Phase::Idle) {
            Phase::Task(mut task) => match fence::guard("request", None, || Some(task.turn(r))) {
                Some(Turn::Wait(ms)) => {
                    self.phase.replace(Phase::Task(task));
                    self.park(r, ms);
                }
                Some(Turn::Answer(answer)) => self.output(r, Output::new(answer)),
                None => self.finalize(r, NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t),
            },
            Phase::Output(output) | Phase::Listening(output) => self.output(r, output),
            other => {
                self.phase.replace(other);
            }
        }
    }

    /// Waits for a timer, a wake-up, or the client's going away.
    fn park(self: &Rc<Self>, r: Request<'_>, ms: u64) {
        let raw = r.as_ptr();
        if !self.watch_client(r) {
            return;
        }
        // SAFETY: a living request. Nothing is to be done on its write events.
        unsafe { (*raw).write_event_handler = Some(ngx_http_request_empty_handler) };
        // SAFETY: as above, and its connection. An end that came while nobody listened is told by
        // no further event.
        unsafe {
            let rev = (*(*raw).connection).read;
            if (*rev).pending_eof() != 0 && !bits::discards_body(raw) && !r.is_subrequest() {
                if let Phase::Listening(output) = self.phase.replace(Phase::Idle) {
                    self.phase.replace(Phase::Over { _kept: Some(output) });
                }
                ngx_http_test_reading(raw);
                return;
            }
        }
        self.with_timer(|timer| timer.set(ms));
    }

    fn output(self: &Rc<Self>, r: Request<'_>, mut output: Output) {
        let raw = r.as_ptr();
        let progress = fence::guard("answer", Progress::Done(ERROR), || output.run(r));
        if let Progress::Done(rc) = progress {
            self.phase.replace(Phase::Over { _kept: Some(output) });
            self.finalize(r, rc);
            return;
        }
        if let Progress::Idle(ms) = progress {
            self.phase.replace(Phase::Listening(output));
            output::calm_write(r);
            self.park(r, ms);
            return;
        }
        if output.is_endless() {
            // On the list of those that an exiting worker ends.
            self.with_timer(Timer::clear);
        }
        self.phase.replace(Phase::Output(output));
        if !self.watch_client(r) {
            return;
        }
        // SAFETY: a living request.
        unsafe { (*raw).write_event_handler = Some(writable) };
        match progress {
            Progress::Blocked => {
                if !output::await_write(r) {
                    self.finalize(r, ERROR);
                }
            }
            Progress::Slice | Progress::Idle(_) | Progress::Done(_) => {
                output::guard_write(r);
                self.with_timer(Timer::post);
            }
        }
    }

    /// Has nginx look whether the client is still there; false: it is not, and the request is
    /// being ended.
    fn watch_client(&self, r: Request<'_>) -> bool {
        let raw = r.as_ptr();
        // SAFETY: a living request and its connection. While nginx discards a body it reads, and
        // sees the client's end itself.
        unsafe {
            if bits::discards_body(raw) || r.is_subrequest() {
                return true;
            }
            (*raw).read_event_handler = Some(ngx_http_test_reading);
            let rev = (*(*raw).connection).read;
            if ngx_handle_read_event(rev, 0) != NGX_OK as ngx_int_t {
                self.finalize(r, ERROR);
                return false;
            }
        }
        true
    }

    /// Ends the request for this task; nginx may free it now or later.
    fn finalize(&self, r: Request<'_>, rc: ngx_int_t) {
        if let Some(timer) = self.timer.borrow().as_ref() {
            timer.clear();
        }
        if !matches!(*self.phase.borrow(), Phase::Over { .. }) {
            let old = self.phase.replace(Phase::Idle);
            let kept = match old {
                Phase::Output(output) | Phase::Listening(output) => Some(output),
                _ => None,
            };
            self.phase.replace(Phase::Over { _kept: kept });
        }
        // SAFETY: the task holds one reference to the request, which this gives back, once: no
        // phase after Over comes here.
        unsafe { ngx_http_finalize_request(r.as_ptr(), rc) };
    }

    fn with_timer(self: &Rc<Self>, act: impl FnOnce(&Timer)) {
        let mut timer = self.timer.borrow_mut();
        let timer = timer.get_or_insert_with(|| {
            let weak = Rc::downgrade(self);
            let mut list = WAITING.get().borrow_mut();
            list.retain(|entry| entry.strong_count() > 0);
            list.push(weak.clone());
            drop(list);
            Timer::new(Kind::Keeping, move || {
                if let Some(inner) = weak.upgrade() {
                    inner.event();
                }
            })
        });
        act(timer);
    }
}

/// Hangs a new task on the request's pool.
fn attach(r: Request<'_>, phase: Phase) -> Option<Rc<Inner>> {
    let raw = r.as_ptr();
    let inner = Rc::new(Inner {
        r: Cell::new(raw),
        phase: RefCell::new(phase),
        timer: RefCell::new(None),
        note: RefCell::new(None),
    });
    // SAFETY: the request's pool lives; the cleanup owns one count of the Rc.
    unsafe {
        let cleanup = ngx_pool_cleanup_add((*raw).pool, 0).as_mut()?;
        cleanup.data = Rc::into_raw(Rc::clone(&inner)).cast_mut().cast();
        cleanup.handler = Some(gone);
    }
    Some(inner)
}

/// The task of a request, by its pool.
fn find(r: Request<'_>) -> Option<Rc<Inner>> {
    let raw = r.as_ptr();
    // SAFETY: the request's pool lives; a cleanup with our handler has our Rc as its data, whose
    // count is raised for the one given out.
    unsafe {
        let mut link = (*(*raw).pool).cleanup;
        while let Some(cleanup) = link.as_ref() {
            if cleanup.handler.is_some_and(|handler| ptr::fn_addr_eq(handler, GONE)) {
                let inner = cleanup.data.cast::<Inner>().cast_const();
                if ptr::eq((*inner).r.get(), raw) {
                    Rc::increment_strong_count(inner);
                    return Some(Rc::from_raw(inner));
                }
            }
            link = cleanup.next;
        }
    }
    None
}

/// Keeps the request while the task goes on.
fn add_reference(r: Request<'_>) {
    // SAFETY: a living request; `main` is itself or the one it belongs to.
    unsafe { bits::add_reference((*r.as_ptr()).main) };
}

callback! {
    /// nginx has read the body.
    fn body_is_there(r: *mut ngx_http_request_t) -> (), or (); {
        // SAFETY: nginx calls it with the request it was given.
        let r = unsafe { Request::from_raw(r) };
        if let Some(inner) = find(r) {
            inner.begin(r);
        }
    }
}

callback! {
    /// The client takes more, or has not for too long.
    fn writable(raw: *mut ngx_http_request_t) -> (), or (); {
        // SAFETY: nginx calls it with the request whose handler it is.
        let r = unsafe { Request::from_raw(raw) };
        let Some(inner) = find(r) else { return };
        // SAFETY: a living request, its connection and its write event; as ngx_http_writer does.
        unsafe {
            let connection = (*raw).connection;
            let wev = (*connection).write;
            if (*wev).timedout() != 0 {
                (*connection).set_timedout(1);
                inner.finalize(r, NGX_HTTP_REQUEST_TIME_OUT as ngx_int_t);
                return;
            }
            if (*wev).delayed() != 0 {
                if ngx_handle_write_event(wev, 0) != NGX_OK as ngx_int_t {
                    inner.finalize(r, ERROR);
                }
                return;
            }
        }
        // An event that tells of the request tells that the client can be written to as well: the
        // next slice is due in the next turn, not in this one.
        if !inner.timer.borrow().as_ref().is_some_and(Timer::is_posted) {
            inner.step(r);
        }
    }
}

callback! {
    /// The request's pool is being destroyed.
    fn gone(data: *mut c_void) -> (), or (); {
        // SAFETY: `attach` gave this count of the Rc to the pool, which calls once.
        let inner = unsafe { Rc::from_raw(data.cast::<Inner>().cast_const()) };
        inner.r.set(ptr::null_mut());
        let timer = inner.timer.take();
        let phase = inner.phase.replace(Phase::Idle);
        drop((timer, phase));
    }
}

const GONE: unsafe extern "C" fn(*mut c_void) = gone;
const ERROR: ngx_int_t = nginx_sys::NGX_ERROR as ngx_int_t;
/// NGX_HTTP_SPECIAL_RESPONSE: from here on a return code is an HTTP status.
const SPECIAL_RESPONSE: ngx_int_t = 300;

/// Every task that has had to wait, and lives.
static WAITING: Global<RefCell<Vec<Weak<Inner>>>> = Global::new(RefCell::new(Vec::new()));
