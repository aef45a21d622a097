//! Lanes on the nodes of a cluster: each is a pool of one, so that quotas, leases, recording and watching hold as for anybody.

use rollhouse_client::{Cluster, OpenError, Pool, PoolRequest};
use rollhouse_core::{AutoresetMode, ColumnRef, EnvId, EnvSpec, OptionValue};
use rollhouse_engine::StepError;

use crate::lanes::{Lane, LaneError, LaneRow, Lanes, reset};

/// Lanes of an env on a cluster.
pub struct ClusterLanes {
    cluster: Cluster,
    env: EnvId,
    options: Vec<(String, OptionValue)>,
    spec: EnvSpec,
}

impl ClusterLanes {
    /// Takes the cluster, the env, and the options that its lanes have unless others are given. Opens a pool of one lane, to learn
    /// what the env is, and closes it. Blocks for as long.
    ///
    /// # Errors
    /// If the cluster refuses the pool.
    pub fn open(
        cluster: Cluster,
        env: EnvId,
        options: Vec<(String, OptionValue)>,
    ) -> Result<Self, OpenError> {
        let pool = cluster.open_pool(request(&env, options.iter()))?;
        let spec = pool.spec().clone();
        // Its lease ends it, if this does not.
        let _closed = pool.close();
        Ok(Self { cluster, env, options, spec })
    }
}

fn request<'a>(env: &EnvId, options: impl Iterator<Item = &'a (String, OptionValue)>) -> PoolRequest {
    let mut request = PoolRequest::new(env.clone(), 1);
    request.settings.autoreset = AutoresetMode::Disabled;
    // Those that come later are kept.
    request.settings.options = options.cloned().collect();
    request
}

impl Lanes for ClusterLanes {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn make(&self, options: &[(String, OptionValue)]) -> Result<Box<dyn Lane>, LaneError> {
        let pool = self.cluster.open_pool(request(&self.env, self.options.iter().chain(options)));
        Ok(Box::new(ClusterLane { pool: pool.map_err(Box::new)? }))
    }
}

struct ClusterLane {
    pool: Pool,
}

impl ClusterLane {
    fn found(&self) -> Result<(), LaneError> {
        if self.pool.loss(0).is_some() { Err(LaneError::Lost) } else { Ok(()) }
    }
}

impl Lane for ClusterLane {
    fn begin(&mut self, seed: Option<u64>, options: &[(String, OptionValue)]) -> Result<(), LaneError> {
        self.pool.reset(&reset(seed, options)).map_err(Box::new)?;
        self.found()
    }

    fn step(&mut self, action: ColumnRef<'_>) -> Result<(), LaneError> {
        if !self.pool.actions().copy_from(action) {
            let wanted = self.pool.spec().action_space.elements();
            let (what, given) = ("action elements", action.len());
            return Err(StepError::Length { what, given, wanted }.into());
        }
        self.pool.step().map_err(Box::new)?;
        self.found()
    }

    fn call(&mut self, method: &str, payload: &str) -> Result<String, LaneError> {
        Ok(self.pool.call_method(0, method, payload).map_err(Box::new)?)
    }

    fn look(&mut self, look: &mut dyn FnMut(&LaneRow<'_>)) -> Result<(), LaneError> {
        let channels = self.pool.spec().info_channels.len();
        let frame = self.pool.frame().map_err(Box::new)?;
        LaneRow::look(&frame, channels, look);
        Ok(())
    }

    fn close(self: Box<Self>) {
        // Its lease ends it, if this does not.
        let _closed = self.pool.close();
    }
}
