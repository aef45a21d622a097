//! An engine with the lanes of a session, stepped here to compare.

use std::sync::Arc;

use rollhouse_client::{Recipe, Session};
use rollhouse_core::EnvSpec;
use rollhouse_env::Registry;
use rollhouse_node::{FrameRequest, OwnedSession, SessionPlan};
use rollhouse_wire::{
    BatchPlaces, FrameHeader, FrameKind, FrameLayout, Grant, HEADER_BYTES, OpenPool, OpenSession, SessionId,
};

/// The parts that a session is made of, kept to make it again if its owner forgets what it did.
#[derive(Debug)]
pub(crate) struct MadeOf {
    pub(crate) recipe: Arc<Recipe>,
    pub(crate) spec: EnvSpec,
    pub(crate) layout: FrameLayout,
    pub(crate) places: BatchPlaces,
    pub(crate) seed: u64,
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

    /// Checks that the answer to a request is what these lanes give when each request is carried out once, in order.
    pub(crate) fn compare(&mut self, id: SessionId, kind: FrameKind, request: &FrameRequest, columns: &[u8]) {
        let Some(lanes) = &mut self.0 else { return };
        let header = FrameHeader {
            kind,
            flags: 0,
            number: FrameHeader::next_number(lanes.last()),
            columns: request.columns.bytes().len() as u32,
            sidecar: 0,
        };
        let expected = lanes.handle(header, request).expect("the node has done it");
        assert!(
            expected[HEADER_BYTES..HEADER_BYTES + columns.len()] == *columns,
            "session {id} answers other numbers than its lanes give"
        );
    }
}

impl MadeOf {
    pub(crate) fn new(recipe: &Arc<Recipe>, grant: &Grant, registry: &Registry, seed: u64) -> Self {
        let spec = registry.get(&recipe.open.settings.env).expect("the node has made it").spec().clone();
        let layout = FrameLayout::of(&spec);
        let places = layout.batch(grant.lanes as usize, false).expect("a small batch");
        Self { recipe: Arc::clone(recipe), spec, layout, places, seed }
    }

    pub(crate) fn session(&self, grant: Grant) -> Session {
        Session::new(Arc::clone(&self.recipe), &self.spec, grant, self.seed)
    }
}
