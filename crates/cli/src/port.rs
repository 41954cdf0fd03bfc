//! `tenure port`: what listens inside a running job, reached at an address of this machine.

use std::time::Duration;

use clap::Args as ClapArgs;
use clap_complete::engine::ArgValueCompleter;
use tenure_api::client::Client;
use tenure_api::client::session::{Heard, Session};
use tenure_api::v1::session::{ClientSays, PortQuery, ServerSays};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};

use crate::completion::complete_jobs;
use crate::context::Context;
use crate::logs::said;
use crate::refusal::Failure;
use crate::resolve;
use crate::safe::safe;
use crate::session::lost;

#[derive(Debug, ClapArgs)]
#[command(after_help = "A notebook:  tenure port JOB 8888   and open http://127.0.0.1:8888\nCtrl-C ends it.")]
pub struct Args {
    #[arg(add = ArgValueCompleter::new(complete_jobs))]
    job: String,
    /// The port in the job, or LOCAL:REMOTE; 0 as LOCAL takes any that is free
    #[arg(value_name = "[LOCAL:]REMOTE", value_parser = ports)]
    ports: (u16, u16),
    /// Of this member of a job over several nodes
    #[arg(long, default_value_t = 0, value_name = "N")]
    member: u32,
}

fn ports(text: &str) -> Result<(u16, u16), String> {
    let number = |text: &str| {
        text.parse::<u16>()
            .map_err(|_| format!("'{text}' is not a port, 1 to 65535"))
    };
    let (local, remote) = match text.split_once(':') {
        Some((local, remote)) => (number(local)?, number(remote)?),
        None => (number(text)?, number(text)?),
    };
    if remote == 0 {
        return Err("the port in the job is 1 to 65535".into());
    }
    Ok((local, remote))
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let client = context.client()?;
    let job = resolve::job::job(&client, &args.job).await?.to_string();
    let (local, remote) = args.ports;
    let listener = TcpListener::bind(("127.0.0.1", local)).await.map_err(|error| {
        Failure::usage(format!("127.0.0.1:{local} cannot be listened on: {error}"))
            .hint(format!("give another port of this machine, as in 0:{remote}"))
    })?;
    let address = listener.local_addr()?;
    let query = PortQuery {
        port: Some(remote),
        session: None,
        member: said(args.member),
    };
    let Session {
        mut sender,
        mut receiver,
    } = client.port_job(&job, &query).await?;
    let id = match receiver.next().await.map_err(lost)? {
        Heard::Says(ServerSays::Opened { session, .. }) => session.to_string(),
        Heard::Says(ServerSays::Closed { why, .. }) => return Err(Failure::Local(why.unwrap_or_default())),
        _ => return Err(lost(tenure_api::client::session::Lost)),
    };
    context
        .out
        .note(format!("port {remote} of {job} is here, until Ctrl-C:"));
    context.out.text(&format!("{address}\n"))?;
    let failed = |error: std::io::Error| Failure::Local(format!("signals cannot be heard: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (client, job, id, out) = (client.clone(), job.clone(), id.clone(), context.out.quiet);
                    tokio::spawn(async move {
                        if let Err(failure) = connect(&client, &job, &id, stream).await
                            && !out
                        {
                            eprint!("{}", failure.text(false));
                        }
                    });
                }
                // Out of descriptors, mostly; some will be free again.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
            heard = receiver.next() => {
                if let Heard::Says(ServerSays::Closed { why, .. }) = heard.map_err(lost)? {
                    return Err(Failure::Local(safe(&why.unwrap_or_default()).into_owned()));
                }
            }
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
        }
    }
    sender.close().await;
    Ok(())
}

/// One connection, from the first byte to the last of either side.
async fn connect(client: &Client, job: &str, session: &str, stream: TcpStream) -> Result<(), Failure> {
    let _ = stream.set_nodelay(true);
    let query = PortQuery {
        port: None,
        session: Some(session.to_owned()),
        member: None,
    };
    let Session {
        mut sender,
        mut receiver,
    } = client.port_job(job, &query).await?;
    let (mut read, mut write) = stream.into_split();
    let inward = async {
        let mut buffer = vec![0; 32 * 1024];
        loop {
            match read.read(&mut buffer).await {
                Ok(0) => {
                    let _ = sender.say(&ClientSays::End).await;
                    // The other side may still have something to say.
                    return std::future::pending().await;
                }
                Ok(got) => {
                    if sender.input(&buffer[..got]).await.is_err() {
                        return std::future::pending().await;
                    }
                }
                Err(_) => return,
            }
        }
    };
    let outward = async {
        loop {
            match receiver.next().await {
                Ok(Heard::Stdout(bytes)) => {
                    if write.write_all(&bytes).await.is_err() {
                        return Ok(());
                    }
                }
                Ok(Heard::Says(ServerSays::Closed { why: Some(why), .. })) => {
                    return Err(Failure::Local(why));
                }
                Ok(Heard::Says(ServerSays::Closed { why: None, .. })) => {
                    let _ = write.shutdown().await;
                    return Ok(());
                }
                Ok(_) => {}
                Err(gone) => return Err(lost(gone)),
            }
        }
    };
    tokio::select! {
        () = inward => Ok(()),
        ended = outward => ended,
    }
}

#[cfg(test)]
mod tests {
    use super::ports;

    #[test]
    fn ports_are_one_or_two_numbers() {
        assert_eq!(ports("8888"), Ok((8888, 8888)));
        assert_eq!(ports("0:80"), Ok((0, 80)));
        assert_eq!(ports("1:65535"), Ok((1, 65535)));
        for bad in ["", "0", "x", "1:", ":1", "70000", "1:2:3", "1:0", "-1"] {
            assert!(ports(bad).is_err(), "{bad}");
        }
    }
}
