//! A request's body, whole: from memory and from the temporary file nginx put it into.

use std::io;

use nginx_sys::{ngx_buf_t, ngx_http_request_t};

use super::request::Request;

/// Why there is no body to work with.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// It is longer than the limit.
    TooLarge,
    /// nginx's temporary file cannot be read.
    File(io::Error),
}

/// Collects the body that nginx has read; nothing sent is an empty body.
pub(super) fn collect(r: Request<'_>, limit: usize) -> Result<Vec<u8>, BodyError> {
    let mut body = Vec::new();
    let r: *mut ngx_http_request_t = r.as_ptr();
    // SAFETY: a living request; `request_body` is null or what
    // ngx_http_read_client_request_body made, and its chain is complete in the post handler.
    unsafe {
        if (*r).request_body.is_null() {
            return Ok(body);
        }
        let mut link = (*(*r).request_body).bufs;
        while let Some(chain) = link.as_ref() {
            append(chain.buf, limit, &mut body)?;
            link = chain.next;
        }
    }
    Ok(body)
}

/// Appends the next bytes of the body that nginx has read, at most `max` from offset `at`; nothing
/// at its end. The body may be far longer than what is in memory.
pub(crate) fn piece(
    r: Request<'_>,
    at: u64,
    max: usize,
    body: &mut Vec<u8>,
) -> Result<usize, BodyError> {
    let r: *mut ngx_http_request_t = r.as_ptr();
    let mut skip = at;
    // SAFETY: as in `collect`; its buffers live as long as the request's pool.
    unsafe {
        if (*r).request_body.is_null() {
            return Ok(0);
        }
        let mut link = (*(*r).request_body).bufs;
        while let Some(chain) = link.as_ref() {
            let buf = *chain.buf;
            let length = match buf.in_file() {
                0 => buf.last.offset_from(buf.pos).max(0) as u64,
                _ => u64::try_from(buf.file_last - buf.file_pos).unwrap_or(0),
            };
            if skip >= length {
                skip -= length;
                link = chain.next;
                continue;
            }
            let take = usize::try_from(length - skip).unwrap_or(max).min(max);
            let mut part = buf;
            if buf.in_file() == 0 {
                part.pos = buf.pos.add(skip as usize);
                part.last = part.pos.add(take);
            } else {
                part.file_pos += skip as libc::off_t;
                part.file_last = part.file_pos + take as libc::off_t;
            }
            append(&raw mut part, usize::MAX, body)?;
            return Ok(take);
        }
    }
    Ok(0)
}

/// Appends what one buffer holds.
///
/// # Safety
///
/// - `buf` is a buffer of a request's body that nginx has read
unsafe fn append(buf: *mut ngx_buf_t, limit: usize, body: &mut Vec<u8>) -> Result<(), BodyError> {
    // SAFETY: the caller says that it is a buffer; in_file says which pair of ends is in use, and
    // the file is open as long as the request's pool.
    let (memory, file) = unsafe {
        if (*buf).in_file() == 0 {
            let length = (*buf).last.offset_from((*buf).pos).max(0) as usize;
            let bytes: &[u8] = match length {
                0 => &[],
                _ => std::slice::from_raw_parts((*buf).pos, length),
            };
            (bytes, None)
        } else {
            (&[][..], Some(((*(*buf).file).fd, (*buf).file_pos, (*buf).file_last)))
        }
    };
    if body.len() + memory.len() > limit {
        return Err(BodyError::TooLarge);
    }
    body.extend_from_slice(memory);
    let Some((fd, mut at, end)) = file else { return Ok(()) };
    let length = usize::try_from(end - at).unwrap_or(0);
    if body.len() + length > limit {
        return Err(BodyError::TooLarge);
    }
    let start = body.len();
    body.resize(start + length, 0);
    let mut rest = &mut body[start..];
    while !rest.is_empty() {
        // SAFETY: `rest` is writable for its length; fd is nginx's open temporary file.
        let n = unsafe { libc::pread(fd, rest.as_mut_ptr().cast(), rest.len(), at) };
        if n < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(BodyError::File(error));
        }
        if n == 0 {
            return Err(BodyError::File(io::ErrorKind::UnexpectedEof.into()));
        }
        at += n as libc::off_t;
        rest = &mut rest[n as usize..];
    }
    Ok(())
}
