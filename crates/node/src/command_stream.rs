//! The command stream of a session: its owner's envelopes come in, answers go out, one after the other.

use std::sync::Arc;
use std::time::Instant;

use rollhouse_wire::{
    CallId, CloseCode, CommandsOpened, Connection, EnvelopeReader, EnvelopeWriter, OpenCommands, Request,
    Responder,
};
use tracing::{Instrument, Span, error_span};

use crate::Gone;
use crate::hosting::Hosting;
use crate::owned_handle::OwnedHandle;

/// Answers an `OpenCommands` and does what comes on the stream until its owner ends it or the session ends. Bytes that
/// are no envelope end the connection with the reason.
///
/// Commands are read one by one: those that wait do so in the stream's receive window.
pub(crate) async fn serve(
    hosting: Arc<Hosting>,
    connection: Connection,
    open: OpenCommands,
    responder: Responder,
) {
    let (began, asked, call) = (Instant::now(), Request::Commands(open), responder.call());
    let session = hosting.session_of(&open, &connection);
    let span = responder.span(&asked);
    span.in_scope(|| {
        let of = session.as_ref().map(|(session, _)| session.id);
        hosting.answers_owner(asked.word(), call, began, of);
    });
    let (session, _admitted) = match session {
        Ok(session) => session,
        Err(refusal) => {
            // Whether he still wants to hear it is his affair.
            let _told = responder.refuse(refusal).instrument(span).await;
            return;
        }
    };
    // What was asked for is done.
    drop(span);
    let opened = CommandsOpened { lanes: session.lanes };
    let Ok((mut reader, mut writer)) = responder.accept_envelopes(opened).await else { return };
    match run(&hosting, &session, &mut reader, &mut writer).await {
        End::ByOwner => {
            // Already finished or lost is as good.
            let _finished = writer.stream().finish();
        }
        End::Session(gone, call) => {
            writer.stream().give_up(CloseCode::SessionEnded);
            reader.stream().give_up(CloseCode::SessionEnded);
            if let Some(gone) = gone {
                // Whoever finds the session gone sees to it that its end is told.
                let span = call.map_or_else(Span::none, |call| error_span!("command", %call));
                hosting.end(session.id, session.incarnation, gone).instrument(span).await;
            }
        }
        End::Fault(code, reason) => {
            hosting.figures.malformed.add(1);
            connection.close(code, &reason);
        }
    }
}

/// Why a command stream ended.
enum End {
    ByOwner,
    /// The session has ended, or was found gone by a command of that call.
    Session(Option<Gone>, Option<CallId>),
    Fault(CloseCode, String),
}

async fn run(
    hosting: &Hosting,
    session: &OwnedHandle,
    reader: &mut EnvelopeReader,
    writer: &mut EnvelopeWriter,
) -> End {
    loop {
        let command = tokio::select! {
            // A command that is here is asked for at once; whether the session still does any is seen there.
            biased;
            read = reader.read() => match read {
                Ok(Some(command)) => command,
                Ok(None) => return End::ByOwner,
                Err(fault) => return match fault.code() {
                    Some(code) => End::Fault(code, fault.to_string()),
                    None => End::ByOwner,
                },
            },
            () = session.status.ending() => return End::Session(None, None),
        };
        let call = command.call;
        let answer = match session.command(command, &hosting.executor, &hosting.figures).await {
            Ok(answer) => answer,
            Err(gone) => return End::Session(gone, call),
        };
        if writer.write_answer(answer).await.is_err() {
            return End::ByOwner;
        }
        // Short commands never wait: other sessions are to have their turn as well.
        tokio::task::consume_budget().await;
    }
}
