//! TCP and unix sockets alike.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::net::{RecvFlags, recv, sockopt};

#[derive(Debug)]
pub(super) enum Listener {
    Inet(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    pub(super) fn inet(addr: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(addr).map(Self::Inet)
    }

    pub(super) fn unix(path: &Path) -> io::Result<Self> {
        UnixListener::bind(path).map(Self::Unix)
    }

    pub(super) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Inet(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Stream::Inet(stream))
            }
            Self::Unix(listener) => Ok(Stream::Unix(listener.accept()?.0)),
        }
    }
}

#[derive(Debug)]
pub(super) enum Stream {
    Inet(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// A second handle of the same socket.
    pub(super) fn another(&self) -> io::Result<Self> {
        match self {
            Self::Inet(stream) => stream.try_clone().map(Self::Inet),
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
        }
    }

    pub(super) fn close(&self) {
        let done = match self {
            Self::Inet(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
        done.ok(); // the other side was first
    }

    /// The coming close sends RST in place of FIN.
    pub(super) fn reset_on_close(&self) {
        sockopt::set_socket_linger(self, Some(Duration::ZERO)).ok(); // a unix socket has none
    }

    /// Whether the other side has closed, as far as can be seen without waiting.
    pub(super) fn gone(&self) -> bool {
        match recv(self, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, n)) => n == 0,
            Err(error) => error != rustix::io::Errno::AGAIN,
        }
    }

    /// Ends an `accept` that waits for somebody.
    pub(super) fn wake_inet(addr: SocketAddr) {
        TcpStream::connect_timeout(&addr, Duration::from_secs(1)).ok(); // nobody waits
    }

    pub(super) fn wake_unix(path: &Path) {
        UnixStream::connect(path).ok(); // nobody waits
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Inet(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Inet(stream) => stream.read(buf),
            Self::Unix(stream) => stream.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Inet(stream) => stream.write(buf),
            Self::Unix(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
