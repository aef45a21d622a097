//! Serves lanes of one pool to many connections: `many_connections rollhouse://HOST:PORT [LISTEN]`.
//!
//! Each TCP connection has one lane of CartPole for as long as it lives. It writes actions, `0` or `1`, a line each, and
//! reads a line for each row: whether the lane began an episode, its reward, its flags and its observation. What becomes
//! of a connection, whenever it ends, is of no matter to the others.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_client::{AsyncCluster, ConnectOptions, PoolRequest, SharedLanes, SharedPool};
use rollhouse_core::ColumnRef;
use rollhouse_engine::{Received, Reset};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const LANES: u32 = 64;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let address = args.next().ok_or("usage: many_connections rollhouse://HOST:PORT [LISTEN]")?;
    let listen = args.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let cluster = AsyncCluster::connect(&address.parse()?, ConnectOptions::default()).await?;
    let pool = cluster.open_pool(PoolRequest::new("CartPole-v1", LANES)).await?;
    let pool = SharedPool::start(pool, &Reset::seeded(1, LANES as usize)).await?;
    let listener = TcpListener::bind(listen).await?;
    println!("{}", listener.local_addr()?);
    let free: Arc<Mutex<Vec<u32>>> = Arc::new(Mutex::new((0..LANES).rev().collect()));
    loop {
        let (stream, _) = listener.accept().await?;
        let Some(lane) = free.lock().pop() else { continue };
        let (pool, free) = (pool.clone(), Arc::clone(&free));
        tokio::spawn(async move {
            if let Ok(lanes) = pool.take(&[lane])
                && let Err(error) = serve(stream, lanes).await
            {
                eprintln!("lane {lane}: {error}");
            }
            free.lock().push(lane);
        });
    }
}

async fn serve(stream: TcpStream, mut lane: SharedLanes) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    // The first row, or one that the lane's last connection did not wait for.
    if let Ok(row) = lane.recv(1, Duration::from_secs(60)).await {
        writer.write_all(line(&row).as_bytes()).await?;
    }
    while let Some(action) = lines.next_line().await? {
        let row = lane.step(ColumnRef::I64(&[action.trim().parse()?])).await?;
        writer.write_all(line(&row).as_bytes()).await?;
    }
    Ok(())
}

fn line(row: &Received) -> String {
    let Received { obs, rewards, terminated, truncated, reset, .. } = row;
    format!("{} {} {}{} {:?}\n", reset[0], rewards[0], terminated[0], truncated[0], obs[0])
}
