//! `rollhouse health`: asks services on this machine how they are, for containers that have no other program.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use rollhouse_config::{Config, CoordinatorConfig, NodeConfig};
use serde::Serialize;

use crate::args::{HealthArgs, ServiceArgs};
use crate::failure::{Failure, Status};
use crate::output::Output;
use crate::settings;

/// Asks the services. Each one that answers has to be well, and at least one has to answer: a container runs a
/// coordinator, a node or both, and need not say which.
pub(crate) fn run(args: &HealthArgs, out: &mut Output) -> Result<Status, Failure> {
    let addresses = match &args.at {
        Some(host) => vec![resolved(host)?],
        None => of_this_machine()?,
    };
    let path = if args.live { "/healthz" } else { "/readyz" };
    let (mut answers, mut absent) = (Vec::new(), Vec::new());
    for address in addresses {
        match ask(address, path) {
            Ok(answer) => answers.push((address, answer)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                absent.push(address.to_string())
            }
            Err(error) => return Err(unwell(address, &error.to_string())),
        }
    }
    for (address, answer) in &answers {
        if !answer.well {
            return Err(unwell(*address, &answer.words));
        }
        if args.json {
            out.json(&Health { address: address.to_string(), words: &answer.words })?;
        } else {
            writeln!(out, "{address}: {}", answer.words)?;
        }
    }
    if answers.is_empty() {
        let absent = absent.join(" and ");
        return Err(Failure::new(Status::Unavailable, format_args!("nobody listens on {absent}"))
            .hint("--at HOST:PORT or $ROLLHOUSE_METRICS__LISTEN says where a service answers"));
    }
    Ok(Status::Done)
}

/// The output of `--json` for a service that is well; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct Health<'a> {
    address: String,
    words: &'a str,
}

/// Returns whether a service that listens at that address makes progress.
pub(crate) fn lives(listen: SocketAddr) -> bool {
    ask(reached_at(listen), "/healthz").is_ok_and(|answer| answer.well)
}

/// Returns whether a service that listens at that address takes work, or why it does not; `None` if none answers.
pub(crate) fn readiness(listen: SocketAddr) -> Option<Result<(), String>> {
    let answer = ask(reached_at(listen), "/readyz").ok()?;
    Some(if answer.well { Ok(()) } else { Err(answer.words) })
}

/// Returns the series of a gauge on the page of a service that listens at that address, as the value of its only label
/// and its own value; none if no service answers there.
pub(crate) fn gauges(listen: SocketAddr, name: &str) -> Vec<(String, f64)> {
    let page = ask_for(reached_at(listen), "/metrics", MAX_PAGE_BYTES).map(|answer| answer.words);
    page.map(|page| series(&page, name)).unwrap_or_default()
}

fn series(page: &str, name: &str) -> Vec<(String, f64)> {
    let labelled = page.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
    let parts = labelled.filter_map(|line| {
        let (label, value) = line.split_once("} ")?;
        let (_, word) = label.split_once('=')?;
        Some((word.trim_matches('"').to_owned(), value.parse().ok()?))
    });
    parts.collect()
}

/// Returns the addresses of this machine's services from environment and defaults: a container's services were given
/// the same.
fn of_this_machine() -> Result<Vec<SocketAddr>, Failure> {
    fn set<C: Config>() -> Result<C, Failure> {
        settings::of_service::<C>(&ServiceArgs::default(), &[]).map(|loaded| loaded.config)
    }
    let listen = [set::<CoordinatorConfig>()?.metrics, set::<NodeConfig>()?.metrics];
    let mut addresses: Vec<SocketAddr> = listen.into_iter().flatten().map(reached_at).collect();
    addresses.dedup();
    if addresses.is_empty() {
        let what = "metrics.listen is empty: no service answers such questions here";
        return Err(Failure::new(Status::Usage, what));
    }
    Ok(addresses)
}

/// Returns the first address of a named host.
fn resolved(host: &str) -> Result<SocketAddr, Failure> {
    let unknown = |why: &str| Failure::new(Status::Usage, format_args!("--at {host}: {why}"));
    let mut found = host.to_socket_addrs().map_err(|error| unknown(&error.to_string()))?;
    found.next().ok_or_else(|| unknown("it has no address"))
}

/// Returns the address at which a process of the same machine dials a listener: "all addresses" cannot be dialled.
fn reached_at(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

fn unwell(address: SocketAddr, why: &str) -> Failure {
    Failure::new(Status::Unavailable, format_args!("{address}: {why}"))
}

/// The answer of a service.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    well: bool,
    /// The service's sentence.
    words: String,
}

/// Asks a service once. Blocks for at most [`PATIENCE`] to connect, and for each part of the answer.
fn ask(address: SocketAddr, path: &str) -> io::Result<Answer> {
    ask_for(address, path, MAX_ANSWER_BYTES)
}

/// Asks a service once for an answer of at most `most` bytes, and blocks as [`ask`] does.
fn ask_for(address: SocketAddr, path: &str, most: u64) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(most).read_to_end(&mut answer)?;
    parse(&String::from_utf8_lossy(&answer)).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "what answers there is not a service of rollhouse")
    })
}

fn parse(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.split(' ').next()?;
    let well = match status {
        "200" => true,
        "503" => false,
        _ => return None,
    };
    Some(Answer { well, words: body.trim().to_owned() })
}

/// Time to wait: less than the time that probes have, so that they hear the reason.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of an answer: a head and a sentence.
const MAX_ANSWER_BYTES: u64 = 8 << 10;
/// Bytes of a page of metrics that are read.
const MAX_PAGE_BYTES: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_of_a_gauge_are_read_by_the_value_of_its_label() {
        let page =
            "# TYPE a gauge\na{reason=\"disk\"} 1\na{reason=\"address\"} 2.5\nab{reason=\"x\"} 3\na 4\n";
        assert_eq!(series(page, "a"), [("disk".to_owned(), 1.0), ("address".to_owned(), 2.5)]);
    }

    #[test]
    fn what_a_service_says_is_told_from_what_others_say() {
        let answer = |well, words: &str| Some(Answer { well, words: words.to_owned() });
        assert_eq!(parse("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"), answer(true, "ok"));
        let draining = "HTTP/1.1 503 Service Unavailable\r\n\r\nthe node drains\n";
        assert_eq!(parse(draining), answer(false, "the node drains"));
        assert_eq!(parse("HTTP/1.1 404 Not Found\r\n\r\n"), None);
        assert_eq!(parse("SSH-2.0-OpenSSH_9.2\r\n"), None);
    }

    #[test]
    fn a_listener_on_all_addresses_is_dialled_on_the_loopback_one() {
        for (listen, dialled) in
            [("0.0.0.0:7601", "127.0.0.1:7601"), ("[::]:7601", "[::1]:7601"), ("10.0.0.7:1", "10.0.0.7:1")]
        {
            assert_eq!(reached_at(listen.parse().unwrap()).to_string(), dialled);
        }
    }
}
