//! An engine with the lanes of a session, stepped here to compare.

use std::ops::Range;
use std::sync::Arc;

use rollhouse_arena::Frame;
use rollhouse_client::{Recipe, RequestBody};
use rollhouse_core::{ColumnData, ColumnRef, EnvSpec};
use rollhouse_engine::Received;
use rollhouse_env::Registry;
use rollhouse_node::{FrameRequest, OwnedSession, SessionPlan};
use rollhouse_wire::{
    BatchPlaces, ColumnBuffer, FrameHeader, FrameKind, FrameLayout, Grant, HEADER_BYTES, OpenPool,
    OpenSession, SessionId,
};

use crate::first_done::columns_of;

/// The parts that a session is made of, kept to make it again if its owner forgets what it did.
#[derive(Debug)]
pub(crate) struct MadeOf {
    pub(crate) recipe: Arc<Recipe>,
    pub(crate) spec: EnvSpec,
    pub(crate) layout: FrameLayout,
    pub(crate) places: BatchPlaces,
}

/// Lanes that are stepped as a session's are; `None` once it is not known which requests were carried out.
#[derive(Debug)]
pub(crate) struct Reference(Option<Box<OwnedSession>>);

impl Reference {
    pub(crate) fn new(open: &OpenPool, grant: &Grant, registry: &Registry) -> Self {
        let asked = OpenSession {
            session: SessionId { pool: open.pool, index: grant.index },
            incarnation: grant.incarnation,
            secret: grant.secret,
            owner: String::new(),
            operates: false,
            first_lane: grant.first_lane,
            lanes: grant.lanes,
            pool_lanes: open.lanes,
            replaces: false,
            resume: None,
            settings: open.settings.clone(),
        };
        let plan = Arc::new(SessionPlan::of(&asked, registry, "reference").expect("the node has made it"));
        Self(Some(Box::new(OwnedSession::make(plan, None).expect("the node has made it"))))
    }

    /// Ends the comparing for good.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }

    /// Returns the columns that these lanes give when each request is carried out once, in order.
    fn answer(&mut self, kind: FrameKind, request: &FrameRequest) -> Option<Vec<u8>> {
        let lanes = self.0.as_mut()?;
        let columns = request.columns.bytes().len() as u32;
        let number = FrameHeader::next_number(lanes.last());
        let header = FrameHeader { kind, flags: 0, number, columns, sidecar: 0 };
        let answer = lanes.handle(header, request).expect("the node has done it");
        Some(answer[HEADER_BYTES..].to_vec())
    }

    /// Checks that a batch is what these lanes give.
    pub(crate) fn compare_batch(
        &mut self,
        id: SessionId,
        body: &RequestBody,
        frame: &Frame<'_>,
        (places, lanes): (&BatchPlaces, Range<usize>),
    ) {
        let mut columns = ColumnBuffer::default();
        columns.resize(body.columns.len());
        columns.bytes_mut().copy_from_slice(&body.columns);
        let request = FrameRequest { columns, sidecar: body.sidecar.to_vec() };
        let Some(expected) = self.answer(body.kind, &request) else { return };
        let rows = |column: ColumnRef<'_>, all: usize| {
            let elements = column.len() / all;
            column.slice(lanes.start * elements, lanes.end * elements).bytes().to_vec()
        };
        let all = frame.rewards().len();
        let obs = (0..places.obs.len()).map(|column| (&places.obs[column], rows(frame.obs(column), all)));
        let infos =
            (0..places.infos.len()).map(|column| (&places.infos[column], rows(frame.info(column), all)));
        let others = [
            (&places.rewards, rows(ColumnRef::F64(frame.rewards()), all)),
            (&places.terminated, rows(ColumnRef::U8(frame.terminated()), all)),
            (&places.truncated, rows(ColumnRef::U8(frame.truncated()), all)),
            (&places.reset, rows(ColumnRef::U8(frame.reset()), all)),
        ];
        for (place, shown) in obs.chain(infos).chain(others) {
            assert!(
                expected[place.clone()] == shown,
                "session {id} answers other numbers than its lanes give"
            );
        }
    }

    /// Checks that some rows of these lanes, which took these actions, are what the lanes give.
    pub(crate) fn compare_rows(
        &mut self,
        id: SessionId,
        (lanes, actions): (&[u32], &[i64]),
        (rows, some): (&Received, &[usize]),
        layout: &FrameLayout,
    ) {
        let mut order = some.to_vec();
        order.sort_by_key(|&row| lanes[row]);
        let named: Vec<u32> = order.iter().map(|&row| lanes[row]).collect();
        let taken: Vec<i64> = named.iter().map(|&lane| actions[lane as usize]).collect();
        let columns = columns_of(layout, &named, ColumnRef::I64(&taken).bytes());
        let request = FrameRequest { columns, sidecar: Vec::new() };
        let Some(expected) = self.answer(FrameKind::Send, &request) else { return };
        let places = layout.rows(named.len(), false).expect("few rows");
        let sorted = |column: &ColumnData| {
            let elements = column.len() / lanes.len();
            let rows = order.iter().filter_map(|&row| column.row(row, elements));
            rows.flat_map(|row| row.bytes().to_vec()).collect::<Vec<u8>>()
        };
        let columns = places.obs.iter().zip(&rows.obs).chain(places.infos.iter().zip(&rows.infos));
        let flags = |flags: &[u8]| ColumnData::U8(flags.to_vec());
        let others = [
            (&places.rewards, ColumnData::F64(rows.rewards.clone())),
            (&places.terminated, flags(&rows.terminated)),
            (&places.truncated, flags(&rows.truncated)),
            (&places.reset, flags(&rows.reset)),
        ];
        let columns = columns.map(|(place, column)| (place, sorted(column)));
        for (place, shown) in columns.chain(others.iter().map(|(place, column)| (*place, sorted(column)))) {
            assert!(
                expected[place.clone()] == shown,
                "session {id} answers other numbers than its lanes give"
            );
        }
    }
}

impl MadeOf {
    pub(crate) fn new(recipe: &Arc<Recipe>, grant: &Grant, registry: &Registry) -> Self {
        let spec = registry.get(&recipe.open.settings.env).expect("the node has made it").spec().clone();
        let layout = FrameLayout::of(&spec);
        let places = layout.batch(grant.lanes as usize, false).expect("a small batch");
        Self { recipe: Arc::clone(recipe), spec, layout, places }
    }
}
