//! Answers collectors over HTTP, on a loopback address or a Unix socket. Only `/metrics` is served.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tiny_http::{ConfigListenAddr, Header, Method, Request, Response, Server, ServerConfig};

use super::metrics::{Exposition, exposition};
use super::rates::Row;

/// Longest time until the server notices an interrupt.
const LOOK: Duration = Duration::from_millis(200);

/// The address at which `squall top --serve` listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Listen {
    Loopback(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Self::Loopback(address)),
            Ok(_) => Err("counters are served to this machine alone: give 127.0.0.1:PORT, [::1]:PORT or unix:PATH, and \
                          let a collector or a proxy here carry them further"
                .to_owned()),
            Err(_) => Err("127.0.0.1:PORT, [::1]:PORT or unix:PATH is expected".to_owned()),
        }
    }
}

/// Answers requests until `stop` is set. Each answer shows a new result of `look`.
pub(super) fn serve(
    listen: &Listen,
    stop: &AtomicBool,
    mut look: impl FnMut() -> io::Result<Vec<Row>>,
) -> io::Result<()> {
    let addr = match listen {
        Listen::Loopback(address) => ConfigListenAddr::IP(vec![*address]),
        Listen::Unix(path) => ConfigListenAddr::unix_from_path(path),
    };
    let server = Server::new(ServerConfig { addr, ssl: None }).map_err(io::Error::other)?;
    while !stop.load(Ordering::Relaxed) {
        if let Some(request) = server.recv_timeout(LOOK)? {
            // The client may have closed the connection; go on with the next request.
            let _ = answer(request, &mut look);
        }
    }
    if let Listen::Unix(path) = listen {
        // The socket is this program's; another process may have removed it.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

fn answer(request: Request, look: &mut impl FnMut() -> io::Result<Vec<Row>>) -> io::Result<()> {
    let path = request.url().split('?').next().unwrap_or_default();
    if *request.method() != Method::Get || !matches!(path, "/metrics" | "/") {
        return request.respond(Response::from_string("GET /metrics\n").with_status_code(404));
    }
    let accept = request.headers().iter().find(|header| header.field.equiv("Accept"));
    let format = Exposition::accepted(accept.map_or("", |header| header.value.as_str()));
    match look() {
        Ok(rows) => {
            let mut response = Response::from_string(exposition(&rows, format));
            if let Ok(kind) = Header::from_bytes("Content-Type", format.content_type()) {
                response.add_header(kind);
            }
            request.respond(response)
        }
        Err(error) => {
            request.respond(Response::from_string(format!("{error}\n")).with_status_code(500))
        }
    }
}
