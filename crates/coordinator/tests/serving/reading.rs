//! Whose recordings, pools and sessions a peer may read.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rollhouse_coordinator::Coordinator;
use rollhouse_coordinator::limits::MAX_OWN_PINS;
use rollhouse_core::{EpisodeName, RunId};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Recorder, RecorderConfig, SegmentSummary, SetAside, part_of_run, segment_path};
use rollhouse_wire::{
    CallError, ListAfter, NewToken, OpenReplay, PoolOpened, PoolStatusRequest, ReadGrant, Refusal,
    RefusalCode, Request, Role, SessionId, Ship, Shipped, StoreData, StoreEpisodes, StoreLabel,
    StoreLabelChange, StoreLabelPage, StoreLabelled, StoreLabels, StoreList, StoreListing, StoreQuery,
    StoreRead, StoreStats, StoreStatsRequest, Watch, new_pool_id,
};

use super::on_a_runtime;
use super::stage::{Node, Peer, Stage};
use crate::stage::{Play, play_into};

const FOLDER: &str = "node-a-aaaaaaaa";

/// Segments, each with recordings of some runs.
fn segments(of: &[&[RunId]]) -> Vec<Vec<u8>> {
    let (disk, dir) = (FaultyDisk::new(), Path::new("/spool"));
    let recorder = Recorder::open(Arc::new(disk.clone()), dir, RecorderConfig::default()).unwrap();
    for runs in of {
        for (seed, run) in (0..).zip(*runs) {
            let play = Play { lanes: 2, seed, run: Some(*run), ..Play::new("CartPole-v1", 60) };
            play_into(&recorder, &play, |_, _, _| {});
        }
        recorder.seal().unwrap();
    }
    recorder.finish().unwrap();
    (1..).map_while(|number| disk.read(&segment_path(dir, number))).collect()
}

async fn ship(node: &Node, number: u64, bytes: &[u8]) {
    let (len, crc) = (bytes.len() as u64, crc32c::crc32c(bytes));
    let ship = Ship { spool: "aaaaaaaa".to_owned(), segment: number, bytes: len, crc, owned: Vec::new() };
    let mut call = node.peer().connection.open(&Request::Ship(ship)).await.unwrap();
    call.send.write_all(bytes).await.unwrap();
    call.finish().unwrap();
    let shipped: Shipped = call.answer().await.unwrap();
    assert_eq!(shipped, Shipped::Durable);
}

/// The runs of the episodes that a peer finds.
async fn episodes(peer: &Peer) -> BTreeSet<RunId> {
    let query = StoreQuery { sort: "name".to_owned(), limit: 1000, ..StoreQuery::default() };
    let page: StoreEpisodes = peer.ask(query).await.unwrap();
    page.episodes.iter().map(|episode| episode.run).collect()
}

async fn listed(peer: &Peer, path: &str) -> Result<Vec<String>, RefusalCode> {
    let list = StoreList { path: path.to_owned(), after: String::new() };
    let listing: Result<StoreListing, Refusal> = peer.ask(list).await;
    let listing = listing.map_err(|refusal| refusal.code)?;
    Ok(listing.entries.into_iter().map(|entry| entry.name).filter(|name| name != "store.lock").collect())
}

/// A file of the store as a peer reads it, in small pieces.
async fn file(peer: &Peer, path: &str) -> Result<Vec<u8>, RefusalCode> {
    let mut bytes = Vec::new();
    loop {
        let (path, offset) = (format!("{FOLDER}/{path}"), bytes.len() as u64);
        let read = StoreRead { path, offset, bytes: 5000 };
        let mut call = peer.connection.open(&Request::StoreRead(read)).await.unwrap();
        call.finish().unwrap();
        let data: StoreData = match call.answer().await {
            Err(CallError::Refused(refusal)) => return Err(refusal.code),
            answer => answer.unwrap(),
        };
        let mut piece = vec![0; data.bytes as usize];
        call.receive.read_exact(&mut piece).await.unwrap();
        bytes.append(&mut piece);
        if data.bytes == 0 {
            assert_eq!(bytes.len() as u64, data.file_bytes);
            return Ok(bytes);
        }
    }
}

async fn reads(peer: &Peer, number: u64) -> Result<(), RefusalCode> {
    for file in [format!("segments/{number:010}.seg"), format!("rows/{number:010}.rows")] {
        let read = StoreRead { path: format!("{FOLDER}/{file}"), offset: 0, bytes: 16 };
        peer.ask(read).await.map_err(|refusal| refusal.code)?;
    }
    Ok(())
}

struct Cast {
    coordinator: Coordinator,
    ada: Peer,
    eve: Peer,
    node: Node,
    stage: Stage,
}

impl Cast {
    async fn new() -> Self {
        let stage = Stage::new();
        let coordinator = stage.coordinator();
        let at = coordinator.address();
        let [ada, eve] = [stage.holder(at, Role::Trainer).await, stage.holder(at, Role::Trainer).await];
        let node = stage.node(at, "node-a").await;
        node.register(64).await.unwrap();
        Self { coordinator, ada, eve, node, stage }
    }

    async fn viewer(&self, role: Role, grant: Option<ReadGrant>) -> Peer {
        let name = "looks".to_owned();
        let new = NewToken { name, role, max_lanes: None, reads: grant, lifetime: None, join: None };
        let (_, token) = self.stage.tokens.create(&new, SystemTime::now()).unwrap();
        self.stage.connect(self.coordinator.address(), &token).await
    }
}

fn granted(owner: &Peer) -> Option<ReadGrant> {
    Some(ReadGrant::of_words([owner.connection.known_as()]).unwrap())
}

/// Symptom: every trainer and viewer read the recordings of all owners, and watched their sessions. Cause: the role
/// alone decided. Fix: a trainer reads what its own runs are, whose ids tell the owner, and a token says what else.
#[test]
fn a_trainer_reads_what_is_his_own_and_a_viewer_what_it_was_granted() {
    on_a_runtime(async {
        let cast = Cast::new().await;
        let [of_ada, of_eve] = [&cast.ada, &cast.eve].map(|owner| new_pool_id(owner.connection.known_as()));
        let nobodys = RunId::from_u128(77);
        let more = [&cast.ada, &cast.eve].map(|owner| new_pool_id(owner.connection.known_as()));
        let shipped = segments(&[&[of_ada], &[of_eve], &more, &[nobodys]]);
        assert_eq!(shipped.len(), 4);
        for (number, bytes) in (1..).zip(&shipped) {
            ship(&cast.node, number, bytes).await;
        }
        let admin = cast.viewer(Role::Admin, None).await;
        for run in [of_ada, of_eve] {
            let change = StoreLabelChange::Pin { pinned: true };
            let label = StoreLabel { run, lane: 0, number: 0, change };
            let _labelled: StoreLabelled = admin.ask(label).await.unwrap();
        }
        let all = cast.viewer(Role::Viewer, None).await;
        let narrow = cast.viewer(Role::Viewer, granted(&cast.ada)).await;
        let both = cast.viewer(Role::Trainer, granted(&cast.eve)).await;
        let wide = cast.viewer(Role::Trainer, Some(ReadGrant::All)).await;
        for (peer, reads_ada, reads_eve) in [
            (&cast.ada, true, false),
            (&cast.eve, false, true),
            (&narrow, true, false),
            (&both, false, true),
            (&all, true, true),
            (&wide, true, true),
            (&admin, true, true),
        ] {
            let everything = reads_ada && reads_eve;
            let found = episodes(peer).await;
            assert_eq!((found.contains(&of_ada), found.contains(&of_eve)), (reads_ada, reads_eve));
            assert_eq!(found.contains(&nobodys), everything);
            let stats: StoreStats = peer.ask(StoreStatsRequest {}).await.unwrap();
            assert_eq!(stats.runs as usize, found.len());
            let labels: StoreLabelPage = peer.ask(StoreLabels::default()).await.unwrap();
            let labelled: BTreeSet<RunId> = labels.labels.iter().map(|label| label.run).collect();
            assert_eq!((labelled.contains(&of_ada), labelled.contains(&of_eve)), (reads_ada, reads_eve));
            let mine = [(1, reads_ada), (2, reads_eve), (4, everything)];
            let listable = mine.iter().filter(|(_, mine)| *mine).map(|(number, _)| *number).chain([3]);
            let mut readable: Vec<String> = listable.map(|number| format!("{number:010}.seg")).collect();
            readable.sort();
            assert_eq!(listed(peer, "").await.unwrap(), [FOLDER]);
            assert_eq!(listed(peer, &format!("{FOLDER}/segments")).await.unwrap(), readable);
            for (number, mine) in mine {
                let code = if mine { Ok(()) } else { Err(RefusalCode::Forbidden) };
                assert_eq!(reads(peer, number).await, code, "segment {number}");
            }
            // Symptom: of a segment with several owners' episodes an owner listed his own and could not read them. Cause:
            // whole segments were read. Fix: an owner reads the part that is his own.
            let part = file(peer, "segments/0000000003.seg").await.unwrap();
            let rows = file(peer, "rows/0000000003.rows").await.map(drop);
            let found = SegmentSummary::of(3, &part);
            assert!(found.is_whole());
            if everything {
                assert_eq!(part, shipped[2]);
                assert_eq!(rows, Ok(()));
            } else {
                let [own, others] = if reads_ada { more } else { [more[1], more[0]] };
                assert_eq!(found.runs(), BTreeSet::from([own]));
                let (alone, _) = part_of_run(&shipped[2], own, &SetAside::default()).unwrap();
                assert_eq!(found.episodes(), SegmentSummary::of(3, &alone).episodes());
                assert_eq!(rows, Err(RefusalCode::NotFound));
                let (others, _) = part_of_run(&shipped[2], others, &SetAside::default()).unwrap();
                let secret = &others[others.len() / 2..][..24];
                assert!(shipped[2].windows(24).any(|window| window == secret));
                assert!(!part.windows(24).any(|window| window == secret));
            }
        }
        let stranger = cast.stage.holder(cast.coordinator.address(), Role::Trainer).await;
        assert_eq!(episodes(&stranger).await, BTreeSet::new());
        assert_eq!(listed(&stranger, "").await.unwrap(), [""; 0]);
        assert_eq!(listed(&stranger, FOLDER).await, Err(RefusalCode::NotFound));
        // A replay of another's episode is not opened either.
        let episode = EpisodeName { run: of_eve.short(), lane: 0, number: 0 }.to_string();
        let open = |peer: &Peer| OpenReplay {
            pool: new_pool_id(peer.connection.known_as()),
            episode: episode.clone(),
        };
        let refused = cast.ada.ask(open(&cast.ada)).await.unwrap_err();
        assert_eq!(refused.code, RefusalCode::NotFound, "{refused}");
        let opened = cast.eve.ask(open(&cast.eve)).await;
        assert_ne!(opened.map(drop).map_err(|refusal| refusal.code), Err(RefusalCode::NotFound));
    });
}

#[test]
fn an_owner_pins_a_few_episodes_of_its_own_runs_and_labels_nothing_else() {
    on_a_runtime(async {
        let cast = Cast::new().await;
        let own: Vec<RunId> =
            (0..=MAX_OWN_PINS).map(|_| new_pool_id(cast.ada.connection.known_as())).collect();
        let of_eve = new_pool_id(cast.eve.connection.known_as());
        for (number, bytes) in (1..).zip(&segments(&[&own, &[of_eve]])) {
            ship(&cast.node, number, bytes).await;
        }
        let change = async |run: RunId, change: StoreLabelChange| {
            let label = StoreLabel { run, lane: 0, number: 0, change };
            cast.ada.ask(label).await.map_err(|refusal: Refusal| (refusal.code, refusal.message))
        };
        let pin = async |run: RunId, pinned: bool| change(run, StoreLabelChange::Pin { pinned }).await;
        for run in &own[1..] {
            let labelled: StoreLabelled = pin(*run, true).await.unwrap();
            assert!(labelled.pinned);
        }
        let (code, message) = pin(own[0], true).await.unwrap_err();
        assert_eq!(code, RefusalCode::Forbidden);
        assert!(message.contains("has 32 pinned episodes, at most 32 are allowed"), "{message}");
        assert!(!pin(own[1], false).await.unwrap().pinned);
        assert!(pin(own[0], true).await.unwrap().pinned);
        assert_eq!(pin(of_eve, true).await.unwrap_err().0, RefusalCode::Forbidden);
        let tag = StoreLabelChange::Tag { tags: vec!["best".to_owned()] };
        assert_eq!(change(own[0], tag).await.unwrap_err().0, RefusalCode::Forbidden);
        let viewer = cast.viewer(Role::Viewer, granted(&cast.ada)).await;
        let label =
            StoreLabel { run: own[0], lane: 0, number: 0, change: StoreLabelChange::Pin { pinned: false } };
        assert_eq!(viewer.ask(label).await.unwrap_err().code, RefusalCode::Forbidden);
    });
}

#[test]
fn the_pools_and_sessions_of_an_owner_are_seen_and_watched_by_those_who_may() {
    on_a_runtime(async {
        let cast = Cast::new().await;
        let open = cast.ada.pool(4);
        let _opened: PoolOpened = cast.ada.ask(open.clone()).await.unwrap();
        let all = cast.viewer(Role::Viewer, None).await;
        let narrow = cast.viewer(Role::Viewer, granted(&cast.eve)).await;
        for (peer, may) in [(&cast.ada, true), (&all, true), (&cast.eve, false), (&narrow, false)] {
            let sessions = peer.ask(ListAfter::<SessionId>::default()).await.unwrap();
            assert_eq!(sessions.sessions.len(), usize::from(may));
            let status = PoolStatusRequest { pool: open.pool, keep: false };
            let status = peer.ask(status).await;
            let watch = Watch { session: SessionId { pool: open.pool, index: 0 } };
            let watched = peer.ask(watch).await.map(drop);
            let code = |refusal: &Refusal| refusal.code == RefusalCode::Forbidden;
            assert_eq!(status.is_ok(), may);
            assert_eq!(watched.as_ref().is_err_and(code), !may, "{watched:?}");
            if let Err(refusal) = status {
                assert!(code(&refusal) && refusal.message.contains("--reads OWNER"), "{refusal}");
            }
        }
    });
}
